#!/bin/sh
# systemctl: every unit is well; power verbs end the guest.
verb=
for word in "$@"; do
    case "$word" in
    -*) ;;
    *)
        verb=$word
        break
        ;;
    esac
done
case "$verb" in
poweroff | halt | reboot) exec "$verb" ;;
is-active) echo active ;;
is-enabled) echo enabled ;;
is-system-running) echo running ;;
is-failed)
    echo active
    exit 1
    ;;
esac
exit 0
