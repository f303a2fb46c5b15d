#!/bin/sh
# apt-get with the options of the scripts and no other. `install` gives what /web/packages has: a folder
# for each package, whose files come to /standins. Nothing is installed before the lists are updated.
set -u
[ "$(id -u)" = 0 ] || { echo "E: Could not open lock file /var/lib/dpkg/lock-frontend" >&2 && exit 100; }
[ "${DEBIAN_FRONTEND:-}" = noninteractive ] || exit 100
[ "$1 $2 $3 $4" = "-q -y -o DPkg::Lock::Timeout=300" ] || { echo "E: Command line option" >&2 && exit 100; }
shift 4
printf '%s\n' "$*" >>/web/packages.log
case "$1" in
update) : >/web/updated ;;
install)
    [ "$2" = --no-install-recommends ] || exit 100
    shift 2
    for name in "$@"; do
        if [ ! -e /web/updated ] || [ ! -d "/web/packages/$name" ]; then
            echo "E: Unable to locate package $name" >&2
            exit 100
        fi
        for file in "/web/packages/$name/"*; do
            [ ! -e "$file" ] || cp "$file" /standins/ || exit 100
        done
    done
    ;;
*)
    echo "E: Invalid operation $1" >&2
    exit 100
    ;;
esac
