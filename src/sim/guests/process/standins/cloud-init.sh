#!/bin/sh
# Stand-in for cloud-init: it has finished. The guest's traits decide whether with success, with
# errors, or with a status that cannot be read.
traits=
[ ! -r "${GUEST_ETC:-/etc}/guest.env" ] || . "${GUEST_ETC:-/etc}/guest.env"
state='done' ended=0 errors='[]'
case " $traits " in
*" init-error "*) state=error ended=1 errors="['scripts-user failed']" ;;
*" init-degraded "*) ended=2 errors="['deprecated key']" ;;
*" init-broken "*)
    echo "Traceback (most recent call last):" >&2
    echo "PermissionError: [Errno 13] /run/cloud-init/status.json" >&2
    exit 1
    ;;
esac
case "${1:-}" in
status)
    echo "status: $state"
    case " $* " in
    *" --long "* | *" -l "*)
        printf 'extended_status: %s\nboot_status_code: enabled-by-generator\n' "$state"
        printf 'detail: DataSourceNoCloud\nerrors: %s\n' "$errors"
        ;;
    esac
    exit "$ended"
    ;;
--version | -v) echo "cloud-init 22.4.2" ;;
esac
exit 0
