#!/bin/sh
# Stand-in for date: a process guest has no clock of its own, so that the host's clock is read and
# never set.
for word; do
    case $word in
    -s | -s?* | --set | --set=*) exit 0 ;;
    esac
done
for date in /usr/bin/date /bin/date; do
    [ -x "$date" ] && exec "$date" "$@"
done
exit 127
