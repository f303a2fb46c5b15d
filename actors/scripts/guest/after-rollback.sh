# Repairs a guest after a rollback to its snapshot: it must not keep the time of the snapshot, an
# old lease of its address, the random numbers of that time, or anybody's session.
# Every part but the last may lack its tools. The last checks that no lease's key is there.
# Arguments: the seconds since 1970; a word that was never used before; `leased` where the snapshot is
# of a lease, whose key belongs there.
now=$1 word=$2 of=${3:-}

# The clock: drover's time first, so that nothing waits for a time server.
off=$(($(date +%s) - now))
if [ "${off#-}" -gt 1 ]; then
    as_root date -u -s "@$now" >/dev/null 2>&1 || echo "warning: the clock is off by $off s"
fi
has chronyc && as_root chronyc -a makestep >/dev/null 2>&1

# Randomness: what is mixed in is new, whatever the rollback restored.
printf '%s %s %s\n' "$word" "$now" "$(date +%s%N)" >/dev/urandom 2>/dev/null

# The lease of the address.
if has ip; then
    cards=$(ip -o route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | sort -u)
    for card in $cards; do
        if has networkctl; then
            as_root networkctl renew "$card" >/dev/null 2>&1
        elif has dhclient; then
            as_root dhclient -1 -nw "$card" >/dev/null 2>&1
        fi
    done
fi

end_other_sessions
if [ "$of" != leased ] && grep -q ' drover-lease-' "$HOME/.ssh/authorized_keys" 2>/dev/null; then
    echo "the key of a lease is still there: the rollback did not happen" >&2
    exit 1
fi
exit 0
