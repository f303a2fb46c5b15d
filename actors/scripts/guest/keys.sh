#!/bin/sh
# What the scripts that change the login user's keys have in common: one change at a time, and a file
# that is whole at every moment.
#
# The lock is a symbolic link to the name of its owner, a process and its start. `ln -s` makes it with
# that name in one step, is in every guest, and needs no block of a full disk; `flock` is not
# everywhere, and a folder has no owner until a second step. A lock whose owner died is removed by one
# at a time: by whoever is alone with a file of its name beside the lock.
#
# A script that was killed can leave a `mv` behind that still runs. Whoever has the lock therefore removes
# first what others wrote beside the keys, so that a late `mv` finds nothing.
#
# Keys behind a symbolic link are changed where the link leads, and the link stays.
# Ends with 75 where another try can help, and with another failure where none does.
set -u
export LC_ALL=C
umask 077

folder=$HOME/.ssh
keys=$folder/authorized_keys
lock=$folder/.drover-keys.lock
# shellcheck disable=SC2034 # not every script needs it
ended=$folder/.drover-ended

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}
again() {
    printf '%s\n' "$*" >&2
    exit 75
}

# When a process started, in ticks since the boot; nothing where the guest does not tell.
started() {
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # The name of its program can hold blanks.
    stat=${stat##*) }
    # shellcheck disable=SC2086 # numbers
    set -- $stat
    # A dead one that nobody waited for has ended.
    case ${1:-} in [ZX]) printf 'dead' ;; *) [ $# -lt 20 ] || printf '%s' "${20}" ;; esac
}

# Whether the owner of this name lives.
lives() {
    kill -0 "${1%%.*}" 2>/dev/null && [ "$(started "${1%%.*}")" = "${1#*.}" ]
}

# Removes the lock of an owner that died.
free_lock() {
    holder=$(readlink "$lock" 2>/dev/null) || return 0
    ! lives "$holder" || return 0
    { true >"$lock.$owner"; } 2>/dev/null || return 0
    alone=yes
    for other in "$lock".*; do
        other=${other#"$lock."}
        [ "$other" != "$owner" ] || continue
        if lives "$other"; then alone=no; else rm -f "$lock.$other"; fi
    done
    [ $alone = no ] || [ "$(readlink "$lock" 2>/dev/null)" != "$holder" ] || rm -f "$lock"
    rm -f "$lock.$owner"
}

# shellcheck disable=SC2317 # a trap calls it
release_lock() {
    [ "$(readlink "$lock" 2>/dev/null)" != "$owner" ] || rm -f "$lock"
}

take_lock() {
    owner=$$.$(started $$)
    trap release_lock EXIT
    trap 'exit 75' HUP INT PIPE TERM
    turns=0
    unheld=0
    until said=$(ln -s "$owner" "$lock" 2>&1); do
        turns=$((turns + 1))
        [ $turns -lt 150 ] || again "the keys stay locked: $said"
        # Nobody has it: the folder takes no file, now or for good.
        if [ -L "$lock" ]; then unheld=0; else unheld=$((unheld + 1)); fi
        [ $unheld -lt 10 ] || again "the keys cannot be locked: $said"
        free_lock
        sleep 0.1 2>/dev/null || sleep 1
    done
    # A link is made inside what is a folder, or leads to one.
    if [ "$(readlink "$lock" 2>/dev/null)" != "$owner" ]; then
        rm -f "$lock/$owner"
        fail "$lock is no lock of drover: remove it"
    fi
    follow_link
    beside=$real.drover.$owner
    rm -f "$real".drover.*
}

# Finds the file behind symbolic links.
follow_link() {
    real=$keys
    links=0
    while [ -L "$real" ]; do
        links=$((links + 1))
        [ $links -lt 9 ] || fail "$keys is a symbolic link without an end"
        next=$(readlink "$real") || fail "$real cannot be read"
        case $next in /*) real=$next ;; *) real=${real%/*}/$next ;; esac
    done
    [ ! -e "$real" ] || [ -f "$real" ] || fail "$real is no plain file"
    [ -d "${real%/*}" ] || fail "$keys leads to ${real%/*}, which is no folder"
}

# What the file says, its last line ended. A power cut can leave bytes of zero in it: sshd ends a line
# there, and not every sed reads on behind one.
said() {
    [ -e "$real" ] || return 0
    tr -d '\000' <"$real" || return
    [ ! -s "$real" ] || [ "$(tail -c 1 "$real" | tr '\n' x)" = x ] || echo
}

bytes() { wc -c | tr -dc 0-9; }

# Leaves out the lines that an address of sed names, and adds one at the end if one is given. The
# new file takes the place of the old one when it has every byte that it is to have.
change_keys() {
    line=${2:-}
    all=$(said | bytes)
    size=0
    [ ! -e "$real" ] || size=$(tr -d '\000' <"$real" | bytes)
    # It was read to its end, which can lack the end of its line.
    [ "$all" = "$size" ] || [ "$all" = $((size + 1)) ] || return
    out=$(said | sed -n "$1p" | bytes)
    more=0
    [ -z "$line" ] || more=$((${#line} + 1))
    [ "$out" != 0 ] || [ $more != 0 ] || return 0
    if write_beside "$1" && [ "$(bytes <"$beside")" = $((all - out + more)) ]; then
        # The content is to be on the disk before the name is; not every dd can see to it.
        dd if=/dev/null of="$beside" conv=notrunc,fsync 2>/dev/null
        mv -f "$beside" "$real" && return
    fi
    rm -f "$beside"
    return 1
}

write_beside() {
    fixed=no
    if [ -e "$real" ]; then
        # For its mode and its owner.
        cp -p "$real" "$beside" || return
        [ -w "$beside" ] || { fixed=yes && chmod u+w "$beside"; } || return
    fi
    { said | sed "$1d"; } >"$beside" || return
    [ -z "$line" ] || printf '%s\n' "$line" >>"$beside" || return
    [ $fixed = no ] || chmod u-w "$beside"
}

# A file that cannot be read says nothing of the keys in it. It is opened, since a shell of root says
# of every file that it can be read.
opens() { { true <"$real"; } 2>/dev/null; }
readable() {
    [ -e "$real" ] || return 0
    opens || chmod u+r "$real" 2>/dev/null
    opens || again "$real cannot be read"
}

# The lines of a lease: editors leave blanks and carriage returns at their ends, which sshd does not read.
lines_of() { printf '/ drover-lease-%s[[:space:]]*$/' "$1"; }

# shellcheck disable=SC2034 # not every script needs it
any_lease='[^[:space:]]*'
# Lines of leases whose key was taken out of use in its place.
# shellcheck disable=SC2034 # not every script needs it
spent="/^#.* drover-lease-${any_lease}[[:space:]]*\$/"
