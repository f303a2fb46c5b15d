#!/bin/sh
# Stand-in for systemctl: it runs units that have a file, and reports all others as active. Power
# verbs end the guest.
verb="" now="" units=""
for word in "$@"; do
    case "$word" in
    --now) now=1 ;;
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$word; else units="$units ${word%.service}"; fi ;;
    esac
done
etc=${GUEST_ETC:-/etc} var=${GUEST_VAR:-/var} run=${GUEST_RUN:-/guest/run}

file_of() { echo "$etc/systemd/system/$1.service"; }
setting() { sed -n "s/^$2=//p" "$(file_of "$1")" | tail -n 1; }
runs() { kill -0 "$(cat "$run/unit-$1.pid" 2>/dev/null)" 2>/dev/null; }

stop() {
    runs "$1" || return 0
    pid=$(cat "$run/unit-$1.pid")
    kill "$pid"
    while runs "$1"; do sleep 0.05; done
    rm -f "$run/unit-$1.pid"
}

# The stand-in receives no readiness notification: a unit is ready when its socket exists, or after
# it has run for a moment.
start() {
    runs "$1" && return 0
    command=$(setting "$1" ExecStart) state=$(setting "$1" StateDirectory)
    runtime=$(setting "$1" RuntimeDirectory) given=$(setting "$1" EnvironmentFile)
    credentials=$run/credentials-$1
    rm -rf "$credentials" && mkdir -p "$credentials"
    sed -n 's/^LoadCredential=//p' "$(file_of "$1")" | while IFS=: read -r name path; do
        cp "$path" "$credentials/$name" || exit 1
    done || return 1
    (
        given=${given#-}
        set -a
        [ ! -r "$given" ] || . "$given"
        CREDENTIALS_DIRECTORY=$credentials
        [ -z "$state" ] || STATE_DIRECTORY=$var/lib/$state
        [ -z "$runtime" ] || RUNTIME_DIRECTORY=/run/$runtime
        set +a
        mkdir -p "${STATE_DIRECTORY:-$run}" "${RUNTIME_DIRECTORY:-$run}"
        cd /
        # The shell writes its process id, which the unit's program keeps.
        exec setsid sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$run/unit-$1.pid" $command
    ) </dev/null >>"$var/log/unit-$1.log" 2>&1 &
    turns=0
    while [ ! -s "$run/unit-$1.pid" ] && [ $turns -lt 200 ]; do
        sleep 0.05
        turns=$((turns + 1))
    done
    turns=0
    while runs "$1" && [ $turns -lt 1200 ]; do
        if [ -n "$runtime" ]; then
            for socket in "/run/$runtime"/*.sock; do [ ! -S "$socket" ] || return 0; done
        elif [ $turns -gt 4 ]; then
            return 0
        fi
        sleep 0.05
        turns=$((turns + 1))
    done
    echo "Job for $1.service failed because the control process exited with error code." >&2
    return 1
}

each() {
    for unit in $units; do
        [ ! -e "$(file_of "$unit")" ] || "$1" "$unit" || exit 1
    done
}

case "$verb" in
poweroff | halt | reboot) exec "$verb" ;;
start) each start ;;
stop) each stop ;;
restart)
    each stop
    # An old socket would make the unit look ready.
    for unit in $units; do
        runtime=$([ ! -e "$(file_of "$unit")" ] || setting "$unit" RuntimeDirectory)
        [ -z "$runtime" ] || rm -f "/run/$runtime"/*.sock
    done
    each start
    ;;
enable) [ -z "$now" ] || each start ;;
is-active)
    for unit in $units; do
        if [ -e "$(file_of "$unit")" ] && ! runs "$unit"; then
            echo inactive
            exit 3
        fi
    done
    echo active
    ;;
is-enabled) echo enabled ;;
is-system-running) echo running ;;
is-failed)
    echo active
    exit 1
    ;;
esac
exit 0
