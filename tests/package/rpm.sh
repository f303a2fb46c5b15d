#!/usr/bin/env bash
# Installs and removes the RPM in a root that is thrown away: tests/package/rpm.sh ROOT.tar RPM. Its scripts
# run with the tools of Debian's minimal root, in which rpm keeps a database of its own.
set -euo pipefail
root=$(mktemp -d "${TMPDIR:-/var/tmp}/drover-rpm.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
fail() { echo "$1" >&2; exit 1; }
tar -xf "$1" -C "$root"
rpm --root "$root" --nodeps --nosignature -i "$2"
chroot "$root" drover --version
rights=$(chroot "$root" stat -c '%U %G %a' /etc/drover /etc/drover/credentials | sort -u)
[ "$rights" = "root drover 750" ] || fail "the rights are: $rights"
echo kept >"$root/etc/drover/drover.yaml"
rpm --root "$root" --nodeps -e drover
[ ! -e "$root/usr/bin/drover" ] || fail "the program is left"
[ -e "$root/etc/drover/drover.yaml" ] || fail "the configuration is gone"
