#!/usr/bin/env bash
# Runs one test under a real systemd, in a machine of QEMU: tests/package/systemd.sh IMAGE.qcow2 DEB TEST
# The image is the full one of the tier vm.
#
#   upgrade   guest.sh: an upgrade with a lease and a command, then removal and purge
#   readme    readme.py: the commands of README and the quickstart, as they are typed on a new machine
set -euo pipefail
export LC_ALL=C
image=$(realpath "$1") deb=$2 test=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/drover-systemd.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir "$work/seed"
case $test in
upgrade)
  command='sh /mnt/guest.sh'
  cp "$deb" "$work/seed/first.deb"
  dpkg-deb -R "$deb" "$work/next"
  sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
  dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/next" "$work/seed/next.deb" >/dev/null
  cp "$here"/{guest,lab}.sh "$work/seed/"
  ;;
readme)
  command='python3 /mnt/readme.py type /mnt'
  cp "$deb" "$here/readme.py" "$here"/../../{README.md,src/book/quickstart.md,src/book/simulator.md} "$work/seed/"
  cp "$(command -v bwrap)" "$work/seed/bwrap"
  ;;
*) echo "unknown test \`$test\`: choose upgrade or readme" >&2; exit 2 ;;
esac
echo 'instance-id: drover-package' >"$work/seed/meta-data"
cat >"$work/seed/user-data" <<DATA
#cloud-config
runcmd:
  - [sh, -c, "mount -o ro /dev/sr0 /mnt; $command >/dev/ttyS0 2>&1; poweroff"]
DATA
genisoimage -quiet -V cidata -J -r -o "$work/seed.iso" "$work/seed"
TMPDIR=$work timeout 1200 qemu-system-x86_64 -accel tcg -cpu max -m 1024 -smp 2 -snapshot -display none -monitor none \
  -drive "file=$image,if=virtio,format=qcow2" -cdrom "$work/seed.iso" -nic user,model=virtio,restrict=on \
  -serial "file:$work/console" </dev/null
tr -d '\r' <"$work/console" | grep -aA2000 '^step: ' || cat "$work/console"
grep -qax "ALL WELL" <(tr -d "\r" <"$work/console")
