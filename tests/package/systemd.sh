#!/usr/bin/env bash
# Upgrades the Debian package under a real systemd, in a machine of QEMU: tests/package/systemd.sh
# IMAGE.qcow2 DEB. The image is the full one of the tier vm. guest.sh says what happens in the machine.
set -euo pipefail
export LC_ALL=C
image=$(realpath "$1") deb=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/drover-systemd.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir "$work/seed"
cp "$deb" "$work/seed/first.deb"
dpkg-deb -R "$deb" "$work/next"
sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/next" "$work/seed/next.deb" >/dev/null
cp "$here/guest.sh" "$work/seed/guest.sh"
echo 'instance-id: drover-package' >"$work/seed/meta-data"
cat >"$work/seed/user-data" <<'DATA'
#cloud-config
runcmd:
  - [sh, -c, "mount -o ro /dev/sr0 /mnt; sh /mnt/guest.sh >/dev/ttyS0 2>&1; poweroff"]
DATA
genisoimage -quiet -V cidata -J -r -o "$work/seed.iso" "$work/seed"
TMPDIR=$work timeout 1200 qemu-system-x86_64 -accel tcg -cpu max -m 1024 -smp 2 -snapshot -display none -monitor none \
  -drive "file=$image,if=virtio,format=qcow2" -cdrom "$work/seed.iso" -nic user,model=virtio,restrict=on \
  -serial "file:$work/console" </dev/null
tr -d '\r' <"$work/console" | grep -aA200 '^step: ' || cat "$work/console"
grep -qax "ALL WELL" <(tr -d "\r" <"$work/console")
