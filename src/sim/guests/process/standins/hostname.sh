#!/bin/sh
# Stand-in for hostname: the guest's name, even where the kernel has the host's.
etc=${GUEST_ETC:-/etc}
case "${1:-}" in
-I | -i | --all-ip-addresses)
    . "$etc/guest.env"
    echo "$address"
    ;;
'' | -*) cat "$etc/hostname" ;;
*) echo "$1" >"$etc/hostname" ;;
esac
