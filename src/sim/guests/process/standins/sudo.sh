#!/bin/sh
# Stand-in for sudo: the guest has one user with all rights, unless the guest's traits say
# otherwise.
traits=
[ ! -r "${GUEST_ETC:-/etc}/guest.env" ] || . "${GUEST_ETC:-/etc}/guest.env"
case " $traits " in
*" no-sudo "*)
    echo "sudo: a password is required" >&2
    exit 1
    ;;
esac
while [ $# -gt 0 ]; do
    case "$1" in
    -u | -g | -p | -C | -h | -r | -t)
        shift
        [ $# -gt 0 ] && shift
        ;;
    -v | -k | -K) exit 0 ;;
    -i | -s)
        shift
        [ $# -gt 0 ] || exec /bin/sh
        ;;
    --)
        shift
        break
        ;;
    -*) shift ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || {
    echo "usage: sudo command" >&2
    exit 1
}
exec env "$@"
