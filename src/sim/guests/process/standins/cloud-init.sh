#!/bin/sh
# cloud-init: has always just finished.
case "${1:-}" in
status)
    echo "status: done"
    case " $* " in
    *" --long "* | *" -l "*) printf 'extended_status: done\nboot_status_code: enabled-by-generator\ndetail: DataSourceNoCloud\nerrors: []\n' ;;
    esac
    ;;
--version | -v) echo "cloud-init 22.4.2" ;;
esac
exit 0
