#!/bin/sh
# hostname: the guest's own, also where the kernel's is the host's.
etc=${GUEST_ETC:-/etc}
case "${1:-}" in
-I | -i | --all-ip-addresses)
    . "$etc/guest.env"
    echo "$address"
    ;;
'' | -*) cat "$etc/hostname" ;;
*) echo "$1" >"$etc/hostname" ;;
esac
