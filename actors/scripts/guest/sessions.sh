#!/bin/sh
# Shared by the scripts that end other people's sessions. The environment of every process that an
# SSH session of this guest started shows its connection. Where systemd keeps sessions, a process stays
# in the scope of its session whatever it does to its environment. This script, its parents and its
# session are spared.
set -u
export LC_ALL=C

# shellcheck disable=SC2317 # not every script needs it
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@" 2>/dev/null; fi
}
# shellcheck disable=SC2317 # not every script needs it
has() { command -v "$1" >/dev/null 2>&1; }

# The scope of a process that a session of this user started (cgroup v2, and systemd's own of v1).
scope_of() {
    sed -n 's|^[0-9]*:\(name=systemd\)\{0,1\}:.*/\(user-'"$user"'\.slice/session-[^/]*\.scope\).*|\2|p' \
        "/proc/$1/cgroup" 2>/dev/null
}

end_other_sessions() {
    user=$(id -u)
    own_scope=$(scope_of $$)
    door=${SSH_CONNECTION:-}
    door=${door#* * }
    [ -n "$door" ] || return 0
    spared=" $$ "
    parent=$$
    while [ "$parent" -gt 1 ]; do
        parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$parent/status" 2>/dev/null)
        [ -n "$parent" ] || break
        spared="$spared$parent "
    done
    for place in /proc/[0-9]*; do
        process=${place#/proc/}
        case $spared in *" $process "*) continue ;; esac
        came=$(tr '\0' '\n' <"$place/environ" 2>/dev/null | sed -n 's/^SSH_CONNECTION=[^ ]* [^ ]* //p')
        if [ "$came" != "$door" ]; then
            scope=
            [ -z "$own_scope" ] || scope=$(scope_of "$process")
            case $scope in '' | "$own_scope") continue ;; esac
            # Cron and the console have sessions too.
            scope=${scope##*/session-}
            grep -qs '^SERVICE=sshd' "/run/systemd/sessions/${scope%.scope}" || continue
        fi
        kill -9 "$process" 2>/dev/null
    done
    return 0
}
