#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian package in a root that is thrown away:
# tests/package/install.sh ROOT.tar DEB. It needs root; nothing of this machine is changed.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
tar=$1 deb=$2
work=$(mktemp -d "${TMPDIR:-/var/tmp}/drover-package.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
mkdir "$root"
tar -xf "$tar" -C "$root"

fail() { echo "$1" >&2; exit 1; }
in_root() { chroot "$root" "$@"; }
# is WANTED COMMAND…: what a command in the root says.
is() {
  local wanted=$1 got; shift
  got=$(in_root "$@" 2>&1) || true
  [ "$got" = "$wanted" ] || fail "$*: expected \`$wanted\`, got \`$got\`"
}
absent() { local path; for path in "$@"; do [ ! -e "$root$path" ] || fail "$path is still there"; done; }
present() { local path; for path in "$@"; do [ -e "$root$path" ] || fail "$path is not there"; done; }
# says TEXT: the last command of dpkg printed it.
says() { grep -qF -- "$1" "$work/said" || { cat "$work/said" >&2; fail "dpkg did not say: $1"; }; }
dpkg_in_root() { in_root dpkg "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "dpkg $* failed"; }; }

version=$(dpkg-deb -f "$deb" Version)
cp "$deb" "$root/first.deb"
# The same package by a higher version.
dpkg-deb -R "$deb" "$work/next"
sed -i "s/^Version: .*/Version: $version+next/" "$work/next/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/next" "$root/next.deb" >/dev/null

# Installed: a user without a login, folders that its group reads, a unit that nobody started.
dpkg_in_root -i /first.deb
says "drover init"
is "drover $version" drover --version
is "drover:/var/lib/drover:/usr/sbin/nologin" sh -c 'getent passwd drover | cut -d: -f1,6,7'
is "root drover 750" stat -c '%U %G %a' /etc/drover
is "root drover 750" stat -c '%U %G %a' /etc/drover/credentials
is "disabled" systemctl is-enabled drover.service
is "" systemd-analyze verify drover.service
in_root man -w drover >/dev/null || fail "man drover finds nothing"
[ "$(in_root man drover | wc -l)" -gt 20 ] || fail "the man page is short"
in_root sh -c '! ldd /usr/bin/drover | grep "not found"' || fail "a library is missing"

# The example is one that drover takes, as soon as what it names is there.
printf 'x' | in_root sh -c 'umask 077; cat >/etc/drover/credentials/proxmox-token'
ssh-keygen -q -t ed25519 -N '' -f "$root/etc/drover/credentials/agent-ssh-key"
sed '/END CERT/q' /etc/ssl/certs/ca-certificates.crt >"$root/etc/drover/pve-root-ca.pem"
cp "$root/etc/drover/drover.yaml.example" "$root/etc/drover/drover.yaml"
in_root drover check /etc/drover || fail "drover does not take the example"

# Upgraded: what an administrator changed stays.
echo 'LOG_LEVEL=debug' >>"$root/etc/default/drover"
chmod 700 "$root/etc/drover"
in_root systemctl -q enable drover.service
dpkg_in_root -i /next.deb
grep -q LOG_LEVEL=debug "$root/etc/default/drover" || fail "a changed conffile was replaced"
is "root drover 700" stat -c '%U %G %a' /etc/drover
is "enabled" systemctl is-enabled drover.service
# And back: what the journal allows is said by the program.
dpkg_in_root -i /first.deb

# Removed: the configuration and the journal stay.
install -d -m 700 "$root/var/lib/drover"
in_root chown drover:drover /var/lib/drover
: >"$root/var/lib/drover/journal.redb"
dpkg_in_root -r drover
absent /usr/bin/drover /usr/lib/systemd/system/drover.service
present /etc/drover/drover.yaml /etc/drover/credentials/agent-ssh-key /var/lib/drover/journal.redb

# Purged while agents may be left, which nobody could ask: the journal stays, and dpkg says what to do.
dpkg_in_root -P drover
says "agents may be left on a cluster"
says "drover reap --all"
present /etc/drover/drover.yaml /var/lib/drover/journal.redb
absent /etc/drover/drover.yaml.example /etc/default/drover

# Installed again it takes both up, and purged when no agent was left it leaves nothing.
dpkg_in_root -i /next.deb
absent /var/lib/drover/left-at-removal
dpkg_in_root -r drover
echo none >"$root/var/lib/drover/left-at-removal"
dpkg_in_root -P drover
absent /etc/drover /var/lib/drover /etc/default/drover
if in_root getent passwd drover; then fail "the user is still there"; fi
left=$(find "$root/etc" "$root/usr" "$root/var/lib" -name '*drover*')
[ -z "$left" ] || fail "left behind: $left"
