# Removes the key of a lease; to repeat it changes nothing. On a full disk the key is disabled in
# place: its line becomes a comment, which needs no room.
# Argument: the lease.
lease=$1

[ -d "$folder" ] || exit 0
take_lock
if { echo "$lease" >>"$ended"; } 2>/dev/null && [ "$(bytes <"$ended")" -gt 8192 ]; then
    tail -n 100 "$ended" >"$ended.new" && mv -f "$ended.new" "$ended"
fi
[ -e "$real" ] || exit 0
readable
old=$(lines_of "$lease")
there() { [ -n "$(said | sed -n "/^[^#]/{${old}p;}")" ]; }
if ! { change_keys "$spent" && change_keys "$old"; }; then
    sed "${old}s/^./#/" "$real" | dd of="$real" conv=notrunc 2>/dev/null
fi
! there || again "the key is still in $real"
