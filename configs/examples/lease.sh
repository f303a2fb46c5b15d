#!/bin/sh
# A command on a machine of drover's, with curl and ssh alone: lease.sh 'make test' [USER-DATA-FILE]
# DROVER_URL and DROVER_TOKEN_FILE say where drover is; its exit status is the command's.
set -eu
umask 077
folder=$(mktemp -d) lease='' child=''
api() { curl -sS --fail-with-body --retry 5 --retry-connrefused -H "@$folder/header" "$@"; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$folder/lease"; }
cleanup() {
  [ -z "$child" ] || kill "$child" 2>/dev/null || true
  # Safe to repeat; a lease that nobody releases ends by its time.
  [ -z "$lease" ] || api -X DELETE "$DROVER_URL/v1/leases/$lease" || true
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 143' HUP INT TERM

printf 'Authorization: Bearer %s\n' "$(cat "$DROVER_TOKEN_FILE")" >"$folder/header"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$folder/key"
data=''
[ -z "${2:-}" ] || data=",\"userDataBase64\":\"$(base64 <"$2" | tr -d '\n')\""
# By its key a request that is repeated, such as after a lost answer, gets the same lease.
cat >"$folder/ask" <<EOT
{"labels":["linux"],"ttlSeconds":3600,"idempotencyKey":"$folder-$(date +%s)","sshPublicKey":"$(cat "$folder/key.pub")"$data}
EOT
api -d "@$folder/ask" "$DROVER_URL/v1/leases" >"$folder/lease"
lease=$(field id)
until [ "$(field state)" = ready ] && [ -n "$(field host)" ]; do
  if [ "$(field state)" = ended ]; then
    echo "lease $lease ended: $(field detail)" >&2
    exit 1
  fi
  # Answers as soon as the lease is ready or ended, or after these seconds.
  api "$DROVER_URL/v1/leases/$lease?waitSeconds=60" >"$folder/lease"
done
place="[$(field host)]:$(field port)"
echo "${place%:22} $(field hostKey)" | sed 's/^\[\([^]]*\)\] /\1 /' >"$folder/hosts"
ssh -i "$folder/key" -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile="$folder/hosts" \
  -o StrictHostKeyChecking=yes -p "$(field port)" "$(field user)@$(field host)" \
  "env=~/.drover-lease/$lease/env; if [ -e \$env ]; then . \$env; fi; $1" <&0 &
child=$!
wait "$child"
