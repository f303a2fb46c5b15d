#!/bin/sh
# Shared by the scripts that end other people's sessions. The environment of every process that an
# SSH session of this guest started shows its connection. This script and its parents are spared.
set -u
export LC_ALL=C

# shellcheck disable=SC2317 # not every script needs it
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@" 2>/dev/null; fi
}
# shellcheck disable=SC2317 # not every script needs it
has() { command -v "$1" >/dev/null 2>&1; }

end_other_sessions() {
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
        [ "$came" = "$door" ] && kill -9 "$process" 2>/dev/null
    done
    return 0
}
