#!/bin/sh
# Shared by the scripts that change the login user's keys: one change at a time, and a file that is
# complete at every moment.
#
# The lock is a symbolic link whose target names its owner: a process and its start time. `ln -s`
# creates it with that name in one step, exists in every guest, and needs no block of a full disk.
# `flock` is not in every guest, and a folder has no owner until a second step. A lock whose owner
# died is removed by one process at a time: the one whose file beside the lock is the only one.
#
# A script that was killed can leave a `mv` that still runs. So the owner of the lock first removes
# what others wrote beside the keys, and a late `mv` finds nothing.
#
# Keys behind a symbolic link are changed at the link's target, and the link stays.
# The exit status is 75 when another try can help, and any other failure when none can.
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

# When a process started, in ticks since the boot; nothing when the guest does not say.
started() {
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # The program's name can contain blanks.
    stat=${stat##*) }
    # shellcheck disable=SC2086 # numbers
    set -- $stat
    # A zombie has ended.
    case ${1:-} in [ZX]) printf 'dead' ;; *) [ $# -lt 20 ] || printf '%s' "${20}" ;; esac
}

# Whether the owner with this name still runs.
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
        # Nobody holds the lock: the folder accepts no file, now or for good.
        if [ -L "$lock" ]; then unheld=0; else unheld=$((unheld + 1)); fi
        [ $unheld -lt 10 ] || again "the keys cannot be locked: $said"
        free_lock
        sleep 0.1 2>/dev/null || sleep 1
    done
    # If the lock's path is a folder or leads to one, the link was created inside it.
    if [ "$(readlink "$lock" 2>/dev/null)" != "$owner" ]; then
        rm -f "$lock/$owner"
        fail "$lock is not a lock of drover: remove it"
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
        [ $links -lt 9 ] || fail "$keys is a symbolic link that never ends"
        next=$(readlink "$real") || fail "$real cannot be read"
        case $next in /*) real=$next ;; *) real=${real%/*}/$next ;; esac
    done
    [ ! -e "$real" ] || [ -f "$real" ] || fail "$real is not a plain file"
    [ -d "${real%/*}" ] || fail "$keys leads to ${real%/*}, which is not a folder"
}

# The file's contents, with the last line ended. A power cut can leave zero bytes in the file: sshd
# ends a line there, and not every sed reads past one.
said() {
    [ -e "$real" ] || return 0
    tr -d '\000' <"$real" || return
    [ ! -s "$real" ] || [ "$(tail -c 1 "$real" | tr '\n' x)" = x ] || echo
}

bytes() { wc -c | tr -dc 0-9; }

# Removes the lines that a sed address names, and adds a line at the end if one is given. The new
# file replaces the old one only when it has exactly the bytes that it must have.
change_keys() {
    line=${2:-}
    all=$(said | bytes)
    size=0
    [ ! -e "$real" ] || size=$(tr -d '\000' <"$real" | bytes)
    # The file was read to its end; only the end of its last line may have been missing.
    [ "$all" = "$size" ] || [ "$all" = $((size + 1)) ] || return
    out=$(said | sed -n "$1p" | bytes)
    more=0
    [ -z "$line" ] || more=$((${#line} + 1))
    [ "$out" != 0 ] || [ $more != 0 ] || return 0
    if write_beside "$1" && [ "$(bytes <"$beside")" = $((all - out + more)) ]; then
        # The contents must be on the disk before the name is; not every dd can ensure that.
        dd if=/dev/null of="$beside" conv=notrunc,fsync 2>/dev/null
        mv -f "$beside" "$real" && return
    fi
    rm -f "$beside"
    return 1
}

write_beside() {
    fixed=no
    if [ -e "$real" ]; then
        # Keeps the file's mode and owner.
        cp -p "$real" "$beside" || return
        [ -w "$beside" ] || { fixed=yes && chmod u+w "$beside"; } || return
    fi
    { said | sed "$1d"; } >"$beside" || return
    [ -z "$line" ] || printf '%s\n' "$line" >>"$beside" || return
    [ $fixed = no ] || chmod u-w "$beside"
}

# A file that cannot be read says nothing about the keys in it. The check opens it, because a shell
# of root reports every file as readable.
opens() { { true <"$real"; } 2>/dev/null; }
readable() {
    [ -e "$real" ] || return 0
    opens || chmod u+r "$real" 2>/dev/null
    opens || again "$real cannot be read"
}

# The lines of a lease. Editors leave blanks and carriage returns at line ends, which sshd ignores.
lines_of() { printf '/ drover-lease-%s[[:space:]]*$/' "$1"; }

# shellcheck disable=SC2034 # not every script needs it
any_lease='[^[:space:]]*'
# Lines of leases whose key was disabled in place.
# shellcheck disable=SC2034 # not every script needs it
spent="/^#.* drover-lease-${any_lease}[[:space:]]*\$/"
