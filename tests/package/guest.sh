#!/bin/sh
# Runs as root in a machine with a real systemd, with both packages beside it: an upgrade with a lease
# and a command, then removal and purge. The simulated cluster is in the same machine.
# shellcheck disable=SC2015 # a test that says why it fails
set -eu
here=$(dirname "$0")
fail() { echo "FAULT: $1"; systemctl --no-pager status drover.service || true; journalctl -u drover.service -n 20 --no-pager || true; exit 1; }
step() { echo "step: $1"; }
# shellcheck source=lab.sh disable=SC1091 # read beside this file
. "$here/lab.sh"

step "installed: nothing is started, and a start without a configuration says what is missing"
dpkg -i "$here/first.deb" >/tmp/said 2>&1 || { cat /tmp/said; fail "dpkg -i"; }
[ "$(systemctl is-active drover.service)" = inactive ] || fail "the installation started the service"
if systemctl start drover.service; then fail "it started without a configuration"; fi
[ "$(systemctl show -p ExecMainStatus --value drover.service)" = 2 ] || fail "not ended by 2"
systemctl reset-failed drover.service

step "a simulated cluster"
mkdir /tmp/facts
systemd-run -q --unit sim sh -c 'exec drover sim --listen 127.0.0.1:8006 --guests process --unisolated >/tmp/facts/line'
until [ -s /tmp/facts/line ]; do systemctl -q is-active sim || fail "no simulator"; sleep 0.2; done
# shellcheck disable=SC2034 # for lab.sh
facts=$(cat /tmp/facts/line)
cp "$(fact caFile)" /etc/drover/ca.pem
chmod 644 /etc/drover/ca.pem
lab_yaml 'cloneStrategy: LINKED, sshPort: 2222, guestNetworks: ["127.77.0.0/16"]' >/etc/drover/drover.yaml

step "a missing secret is named"
if systemctl start drover.service; then fail "it started without secrets"; fi
# shellcheck disable=SC2016 # the back quotes are of the message
journalctl -u drover.service --no-pager -o cat | grep -q 'credential `proxmox-token` is empty: `/etc/drover/credentials/proxmox-token` is missing or empty' \
  || fail "it does not say which secret is missing"
systemctl reset-failed drover.service

step "started, with a lease whose command runs"
umask 077
fact tokenSecret >/etc/drover/credentials/proxmox-token
ssh-keygen -q -t ed25519 -N '' -f /etc/drover/credentials/agent-ssh-key
systemctl enable -q --now drover.service || fail "it does not start"
before=$(systemctl show -p MainPID --value drover.service)
mkfifo /tmp/output
(drover lease --labels linux -- 'echo started; until [ -e /tmp/goon ]; do sleep 0.2; done; echo went on' >/tmp/output 2>/tmp/lease.err
 echo $? >/tmp/lease.rc) &
lease=$!
exec 3</tmp/output
read -r line <&3 && [ "$line" = started ] || { cat /tmp/lease.err; fail "no lease"; }
agent=$(drover --json agents)

step "upgraded: the service is another, the agent and the command are the same"
dpkg -i "$here/next.deb" >/tmp/said 2>&1 || { cat /tmp/said; fail "dpkg -i"; }
after=$(systemctl show -p MainPID --value drover.service)
[ "$(systemctl is-active drover.service)" = active ] && [ "$after" != "$before" ] || fail "the service was not restarted"
id() { printf %s "$1" | python3 -c 'import json, sys; print([(a["id"], a["state"]) for a in json.load(sys.stdin)["agents"]])'; }
[ "$(id "$agent")" = "$(id "$(drover --json agents)")" ] || fail "$(id "$agent") became $(id "$(drover --json agents)")"
touch /tmp/goon
read -r line <&3 && [ "$line" = "went on" ] || { cat /tmp/lease.err; fail "the command did not go on"; }
wait $lease
[ "$(cat /tmp/lease.rc)" = 0 ] || { cat /tmp/lease.err; fail "the lease ended by $(cat /tmp/lease.rc)"; }

step "removed: its agents are named, and a purge keeps the journal that knows them"
# An agent with a lease stays, whatever became of the one before.
held=$(drover --json lease --labels linux --ttl 1h 2>/tmp/lease.err | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
[ -n "$held" ] || { cat /tmp/lease.err; fail "no second lease"; }
dpkg -r drover >/tmp/said 2>&1
cat /tmp/said
grep -q 'Nobody destroys them until drover runs here again' /tmp/said || fail "agents are not named"
[ "$(systemctl is-active drover.service)" != active ] || fail "the service still runs"
dpkg -P drover >/tmp/said 2>&1
grep -q 'are kept, because agents may be left' /tmp/said || { cat /tmp/said; fail "purged without a word"; }
[ -e /var/lib/drover/journal.redb ] || fail "the journal is gone"

step "installed again: it adopts them, and retires them"
dpkg -i "$here/next.deb" >/tmp/said 2>&1 || { cat /tmp/said; fail "dpkg -i"; }
systemctl enable -q --now drover.service || fail "it does not start again"
[ "$(id "$(drover --json agents)")" != '[]' ] || fail "nothing was adopted"
# A machine as slow as this one may answer after the call has given up.
drover release "$held" >/dev/null 2>&1 || true
turns=0
until [ "$(id "$(drover --json agents)")" = '[]' ]; do
    turns=$((turns + 1))
    [ $turns -lt 200 ] || fail "agents stay"
    drover reap --all >/dev/null
    sleep 0.3
done

step "purged without agents: nothing is left"
dpkg -P drover >/tmp/said 2>&1
for left in /etc/drover /var/lib/drover /usr/bin/drover /etc/systemd/system/multi-user.target.wants/drover.service; do
    if [ -e "$left" ] || [ -L "$left" ]; then cat /tmp/said; fail "$left is left"; fi
done
if getent passwd drover; then fail "the user is left"; fi
echo "ALL WELL"
