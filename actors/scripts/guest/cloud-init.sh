#!/bin/sh
# Waits until cloud-init is done; a guest without cloud-init passes. Errors of cloud-init become
# warnings, line by line. A cloud-init that cannot report its status fails.
set -u
command -v cloud-init >/dev/null 2>&1 || exit 0
said=$(cloud-init status --wait 2>&1)
ended=$?
state=$(printf '%s\n' "$said" | sed -n 's/^\.*status: *//p' | tail -n 1)
case "$ended:$state" in
# Since 23.4 it exits with 2 after errors that it recovered from; before that, with 1 after any
# error.
[01]:error* | 2:*)
    echo "warning: cloud-init met errors"
    cloud-init status --long 2>&1 | sed -n 's/^\.*\(..*\)/warning: \1/p'
    exit 0
    ;;
0:*) exit 0 ;;
esac
printf '%s\n' "$said" >&2
exit "$ended"
