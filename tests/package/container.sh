#!/usr/bin/env bash
# Builds the container image without a network, and runs the service of it as a user without rights on
# a root that nobody can write to: tests/package/container.sh CONTEXT.tar.gz PROGRAM VERSION
# PROGRAM serves the simulated Proxmox VE outside the image.
set -euo pipefail
export LC_ALL=C
archive=$1 program=$2 version=$3
work=$(mktemp -d "${TMPDIR:-/var/tmp}/drover-container.XXXXXX")
sim='' service='' contained='' mounted=''
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
buildah() { command buildah "${storage[@]}" "$@"; }
cleanup() {
  for process in $service $contained $sim; do kill "$process" 2>/dev/null || true; done
  [ -z "$mounted" ] || buildah rm "$mounted" >/dev/null 2>&1 || true
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() { echo "$1" >&2; exit 1; }
# shellcheck source=lab.sh disable=SC1091 # read beside this file
. "$(dirname "$0")/lab.sh"

tar -xzf "$archive" -C "$work"
# In a name space whose network has nobody in it.
unshare --net buildah "${storage[@]}" build -q --format docker --isolation chroot -t drover "$work/container" >/dev/null
says=$(buildah inspect --type image --format \
  '{{.Docker.Config.User}} {{.Docker.Config.Entrypoint}} {{.Docker.Config.Cmd}} {{.Docker.Config.Healthcheck.Test}}' drover)
[ "$says" = '10001:10001 [/usr/bin/drover] [--config /etc/drover run] [CMD /usr/bin/drover status]' ] || fail "the image says: $says"
mounted=$(buildah from --pull-never drover)
image=$(buildah mount "$mounted")
[ "$(find "$image" -perm -4000 -o -perm -2000 | wc -l)" = 0 ] || fail "a program of the image changes its user"

# What podman and Kubernetes mount.
install -d -m 755 "$work/mounts"
install -d -m 750 "$work/mounts/etc" "$work/mounts/etc/credentials"
install -d -m 700 "$work/mounts/state" "$work/mounts/socket"
mkfifo "$work/facts"
TMPDIR=$work "$program" sim --listen 127.0.0.1:0 >"$work/facts" 2>"$work/sim.log" &
sim=$!
# shellcheck disable=SC2034 # for lab.sh
read -r facts <"$work/facts"
install -m 644 "$(fact caFile)" "$work/mounts/etc/ca.pem"
fact tokenSecret >"$work/mounts/etc/credentials/proxmox-token"
ssh-keygen -q -t ed25519 -N '' -f "$work/mounts/etc/credentials/agent-ssh-key"
lab_yaml >"$work/mounts/etc/drover.yaml"
# As Kubernetes mounts them: root's, and the group's to read or to write.
chgrp -R 10001 "$work/mounts/etc"
chmod 440 "$work/mounts/etc/credentials"/*
chown root:10001 "$work/mounts/state" "$work/mounts/socket"
chmod 2775 "$work/mounts/state"
chmod 2777 "$work/mounts/socket"
chmod 755 "$work" "$work/storage" "$work/mounts"

# A root that is read-only, a user without rights, nothing else of this machine but its network.
# To be called in a subshell, which becomes the program. Without a name space of users, in which root's files would be nobody's.
inside() {
  # shellcheck disable=SC2016 # of the inner shell
  exec unshare --mount sh -c '
    work=$1; root=$work/image; shift
    mount --bind "$root" "$root"
    mount --bind "$work/mounts/etc" "$root/etc/drover" && mount -o remount,bind,ro "$root/etc/drover"
    mount --bind "$work/mounts/state" "$root/var/lib/drover"
    mount --bind "$work/mounts/socket" "$root/run/drover"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    mount -o remount,bind,ro "$root"
    exec env -i STATE_DIRECTORY=/var/lib/drover/state setpriv --no-new-privs \
      "$(command -v chroot)" --userspec=10001:10001 --groups= "$root" "$@"
  ' inside "$work" "$@"
}
# A copy: where the storage mounts it, only root comes by.
cp -a "$image" "$work/image"
[ "$(inside /usr/bin/drover --version)" = "drover $version" ] || fail "drover --version failed in the image"
if (inside /usr/bin/drover status) >/dev/null 2>&1; then fail "the health check takes a service that does not run for healthy"; fi
mkfifo "$work/log"
inside /usr/bin/drover --config /etc/drover run >"$work/log" 2>&1 &
service=$!
exec 3<"$work/log"
seen=''
while IFS= read -r -t 60 line <&3; do
  seen+=$line$'\n'
  case $line in *"cluster reconciled"*) break ;; esac
done
cat <&3 >/dev/null 2>&1 &
(inside /usr/bin/drover status) >"$work/status" 2>&1 || fail "the health check failed: $(cat "$work/status"); the log: $seen"
grep -q lab "$work/status" || fail "the status does not name the cloud: $(cat "$work/status")"
# The group is inherited, and has no rights.
[ "$(stat -c %a "$work/mounts/state/state")" = 2700 ] || fail "others may enter the state directory"

# The book's line for a simulator in a container, by buildah in the place of podman: it shows its CA outside.
podman() {
  local options=()
  shift 2
  while [ "$1" != drover:latest ]; do options+=("$1"); shift; done
  exec buildah "${storage[@]}" run --isolation chroot "${options[@]}" "$mounted" /usr/bin/drover "${@:2}"
}
line=$(grep -x 'podman run .* sim > facts.json' "$(dirname "$0")/../../src/book/simulator.md")
line=${line//\/tmp\/lab/$work\/lab}
install -d -m 777 "$work/lab"
mkfifo "$work/facts.json"
(cd "$work" && eval "$line") 2>"$work/contained.log" &
contained=$!
# shellcheck disable=SC2034 # lab.sh reads them
read -r -t 60 facts <"$work/facts.json" \
  || fail "the simulator of the image says nothing: $line: $(cat "$work/contained.log")"
curl -sSf --noproxy '*' --cacert "$(fact caFile)" -H "Authorization: PVEAPIToken=$(fact tokenId)=$(fact tokenSecret)" \
  "$(fact url)/api2/json/version" | grep -q release || fail "the simulator of the image does not answer"
kill "$contained"
wait "$contained" || true
