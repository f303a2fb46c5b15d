#!/bin/sh
# Stand-in for shutdown, poweroff, halt and reboot: it writes to the guest's first process, which
# ends the guest.
verb=poweroff
case "${0##*/}" in
reboot) verb=reboot ;;
shutdown)
    for word in "$@"; do
        case "$word" in
        -r | --reboot) verb=reboot ;;
        -c) exit 0 ;;
        esac
    done
    ;;
esac
echo "$verb" >"${GUEST_RUN:-/guest/run}/power"
