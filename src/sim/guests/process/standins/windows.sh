#!/bin/sh
# Stand-in for a Windows machine: drover's scripts by their names, and a few commands of cmd.exe.
# Drives are folders below /srv. A script of drover that fails prints its exit status.
verb=$1
shift
keys=$HOME/.ssh/authorized_keys
ended=$HOME/.ssh/.drover-ended

place() {
    path=$(printf '%s' "$1" | tr '\\' /)
    case $path in
    [A-Za-z]:/*) printf '/srv/%s%s' "$(printf '%.1s' "$path" | tr '[:upper:]' '[:lower:]')" "${path#?:}" ;;
    *) printf '%s/%s' "$HOME" "$path" ;;
    esac
}
say() { printf '%s\r\n' "$1"; }
leave() {
    case $verb in
    cmd | refuse) ;;
    *) say "drover-status $1" ;;
    esac
    exit "$1"
}
fail() {
    printf '%s\r\n' "$1" >&2
    leave "${2:-1}"
}
runs() { command -v "$1" >/dev/null 2>&1 || [ -f "$(place "$1")" ]; }
runner() { cd "$HOME/.drover-runners/$1" 2>/dev/null; }
replace() { cat >"$keys.drover" && mv -f "$keys.drover" "$keys"; }

# Runs one command of cmd.exe.
one() {
    case $1 in
    ver) say 'Microsoft Windows [Version 10.0.20348.2227]' ;;
    'echo '*) say "${1#echo }" ;;
    'exit '*) exit "${1##* }" ;;
    'type '*) cat "$(place "${1#type }")" ;;
    'cd '*) cd "$(place "${1#cd }")" ;;
    [A-Za-z]:\\*)
        # shellcheck disable=SC2086 # its words
        set -- $1
        program=$(place "$1")
        shift
        "$program" "$@"
        ;;
    *)
        fail "'${1%% *}' is not recognized as an internal or external command,
operable program or batch file."
        ;;
    esac
}

# Runs a line of commands.
line() {
    rest=$1
    while [ -n "$rest" ]; do
        case $rest in
        *' && '*)
            first=${rest%%' && '*}
            rest=${rest#*' && '}
            ;;
        *)
            first=$rest
            rest=
            ;;
        esac
        one "$first" || return
    done
}

case $verb in
refuse) fail "$1" ;;
# A program that PowerShell runs as the login shell.
powershell) "$0" "$@" || exit 1 ;;
cmd) line "$1" ;;
cards)
    mac=
    . /etc/guest.env
    say "$mac"
    ;;
report)
    say '-- Cloudbase-Init
not installed
-- memory
2048 KiB of 4096 KiB free
-- disks
C: 1000 of 2000 bytes free
-- event log
nothing'
    ;;
remote-fs)
    mkdir -p "$(place "$1")" || fail "user \`$USER\` cannot make the directory \`$1\`"
    runs "$2" || runs java || say "warning: there is no Java, neither at \`$2\` nor on PATH"
    ;;
admit)
    mkdir -p "$HOME/.ssh"
    ! grep -qxF -- "$1" "$ended" 2>/dev/null || fail "lease $1 has ended in this guest"
    old=$1
    [ "$1" != hold ] || old='[^ ]*'
    { sed "/ drover-lease-$old\$/d" "$keys" 2>/dev/null; printf '%s\n' "$2"; } | replace
    ;;
expel)
    echo "$1" >>"$ended"
    sed "/ drover-lease-$1\$/d" "$keys" | replace
    ;;
end-sessions)
    ! grep -q ' drover-lease-' "$keys" || exit 0
    [ -z "$(ls -A "$HOME/.drover-runners" 2>/dev/null)" ] || exit 0
    own=" $$ $PPID "
    at=$PPID
    while [ "$at" -gt 1 ]; do
        at=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$at/status")
        own="$own$at "
    done
    for place in /proc/[0-9]*; do
        case $own in *" ${place#/proc/} "*) continue ;; esac
        if tr '\0' '\n' <"$place/environ" 2>/dev/null | grep -qxF "SSH_CONNECTION=$SSH_CONNECTION"; then
            kill -9 "${place#/proc/}" 2>/dev/null
        fi
    done
    ;;
repair) ! grep -q ' drover-lease-' "$keys" || fail 'the key of a lease is still there: the rollback did not happen' ;;
runner-started)
    ! runner "$1" || [ ! -d begun ] || leave "$2"
    mkdir -p "$HOME/.drover-runners/$1"
    ;;
runner-start)
    runner "$1" || leave 1
    well=$2
    shift 2
    found=$#
    for program; do ! runs "$program" || found=0; done
    [ "$found" = 0 ] || leave 127
    [ -f watch.ps1 ] || fail 'there is nothing to watch it'
    mkdir begun 2>/dev/null || exit 0
    date +%s >since
    setsid "$0" watch "$well" >/dev/null 2>&1 </dev/null &
    turns=0
    until [ -s pid ]; do
        turns=$((turns + 1))
        [ $turns -lt 200 ] || fail 'it did not start' 3
        sleep 0.05
    done
    ;;
watch)
    echo $$ >pid
    "$0" cmd "$(sed -n '3s/\r$//p' run.cmd)" >log 2>&1
    code=$?
    life=ended
    [ $code != 0 ] || life=$1
    echo "$life $code $(($(date +%s) - $(cat since)))" >end.new
    mv end.new end
    ;;
runner-words)
    runner "$1" || fail 'the folder of the runner is gone' 2
    span=$(($(date +%s) - $(cat since 2>/dev/null || date +%s)))
    if [ -s end ]; then
        say "$(cat end) 0"
    elif [ -s pid ] && ! kill -0 "$(cat pid)" 2>/dev/null; then
        say "died 0 $span"
    else
        say "runs 0 $span"
    fi
    tail -c "$2" log 2>/dev/null
    exit 0
    ;;
runner-end)
    runner "$1" || exit 0
    [ ! -s pid ] || kill -KILL -"$(cat pid)" 2>/dev/null
    cd && rm -rf "$HOME/.drover-runners/$1"
    ;;
*) fail "unknown script \`$verb\`" ;;
esac
