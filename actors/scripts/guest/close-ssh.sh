# Shuts everybody out of a guest that is about to be destroyed: no key lets in any more, SSH takes no
# new callers, and nobody stays in. Root's part is done where there is root.
# Arguments: the blob of drover's own public key.
own=$1
closed=0

# In a shell of its own: whatever fails here, the rest is done.
(
    [ -d "$folder" ] || exit 0
    take_lock
    [ -e "$real" ] || exit 0
    readable
    change_keys "$(lines_of "$any_lease")" || exit
    [ -z "$own" ] || change_keys "\\|$own|"
) || closed=1
if has systemctl; then
    # The sockets too, or the next caller would start it again.
    as_root systemctl stop ssh.socket sshd.socket ssh.service sshd.service >/dev/null 2>&1
elif has rc-service; then
    as_root rc-service sshd stop >/dev/null 2>&1
fi
end_other_sessions
exit "$closed"
