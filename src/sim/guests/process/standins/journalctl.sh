#!/bin/sh
# journalctl: what a unit said last.
unit=
while [ $# -gt 0 ]; do
    case "$1" in
    -u | --unit)
        shift
        unit=${1%.service}
        ;;
    esac
    shift
done
tail -n 30 "${GUEST_VAR:-/var}/log/unit-$unit.log" 2>/dev/null
exit 0
