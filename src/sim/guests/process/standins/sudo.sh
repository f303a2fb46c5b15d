#!/bin/sh
# sudo: there is one user, who may do everything; runs the rest.
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
