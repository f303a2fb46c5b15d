# Shuts everybody out of a guest that is about to be destroyed: no key lets anybody in, SSH takes no
# new connections, and every session ends. The parts that need root run where root is available.
# Arguments: the blob of drover's own public key.
own=$1
closed=0

# In a subshell: whatever fails here, the rest still runs.
(
    [ -d "$folder" ] || exit 0
    take_lock
    [ -e "$real" ] || exit 0
    readable
    change_keys "$(lines_of "$any_lease")" || exit
    [ -z "$own" ] || change_keys "\\|$own|"
) || closed=1
if has systemctl; then
    # The sockets too, or the next connection would start the server again.
    as_root systemctl stop ssh.socket sshd.socket ssh.service sshd.service >/dev/null 2>&1
elif has rc-service; then
    as_root rc-service sshd stop >/dev/null 2>&1
fi
end_other_sessions
exit "$closed"
