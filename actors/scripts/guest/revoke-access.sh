# Removes the key of a lease; to repeat it changes nothing. On a full disk the key is disabled in
# place: its line becomes a comment, which needs no room.
# Arguments: the lease; `end` where it is the last one, so that all other sessions end.
lease=$1 sessions=${2:-}

# A call that comes late finds the key of the next lease or of a hold, or a runner, and ends nothing.
# The lock is held meanwhile, so that no key comes.
finish() {
    [ "$sessions" = end ] || exit 0
    ! there "$(lines_of "$any_lease")" || exit 0
    [ -z "$(ls -A "$HOME/.drover-runners" 2>/dev/null)" ] || exit 0
    end_other_sessions
    exit 0
}
there() { [ -n "$(said | sed -n "/^[^#]/{${1}p;}")" ]; }

if [ ! -d "$folder" ]; then
    real=$keys
    finish
fi
take_lock
if { echo "$lease" >>"$ended"; } 2>/dev/null && [ "$(bytes <"$ended")" -gt 8192 ]; then
    tail -n 100 "$ended" >"$ended.new" && mv -f "$ended.new" "$ended"
fi
[ -e "$real" ] || finish
readable
old=$(lines_of "$lease")
if ! { change_keys "$spent" && change_keys "$old"; }; then
    sed "${old}s/^./#/" "$real" | dd of="$real" conv=notrunc 2>/dev/null
fi
! there "$old" || again "the key is still in $real"
finish
