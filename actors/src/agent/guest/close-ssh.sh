# Shuts everybody out of a guest that is about to be destroyed: no key lets in any more, SSH takes no
# new callers, and nobody stays in. Root's part is done where there is root.
# Arguments: the blob of drover's own public key.
own=$1
keys=$HOME/.ssh/authorized_keys
closed=0

if [ -e "$keys" ]; then
    left=$(grep -v ' drover-lease-' "$keys")
    [ -z "$own" ] || left=$(printf '%s\n' "$left" | grep -vF "$own")
    printf '%s\n' "$left" >"$keys" || closed=1
fi
if has systemctl; then
    # The sockets too, or the next caller would start it again.
    as_root systemctl stop ssh.socket sshd.socket ssh.service sshd.service >/dev/null 2>&1
elif has rc-service; then
    as_root rc-service sshd stop >/dev/null 2>&1
fi
end_other_sessions
exit "$closed"
