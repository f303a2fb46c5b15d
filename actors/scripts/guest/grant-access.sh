# Adds the key of a lease; to repeat it changes nothing. The key of a hold replaces the keys of all
# leases. A late call does not let an ended lease in again.
# Arguments: the lease, or `hold`; the line of its key.
lease=$1 added=$2

mkdir -p "$folder" || again "$folder cannot be made"
take_lock
readable
! grep -qxF -- "$lease" "$ended" 2>/dev/null || fail "lease $lease has ended in this guest"
case $lease in
hold) old=$(lines_of "$any_lease") ;;
*) old=$(lines_of "$lease") ;;
esac
there() { [ "$(said | sed -n "${old}p")" = "$added" ]; }
there || { change_keys "$spent" && change_keys "$old" "$added"; } \
    || again "$real cannot be written: $(df -Pk "${real%/*}" 2>/dev/null | tail -n 1)"
there || again "the key is not in $real"
