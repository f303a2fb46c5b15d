#!/bin/sh
# What run.sh of actions/runner makes of the ends of its listener, which is runner.py beside it here.
#
# It follows 2.336.0 at 258d6c857db3: `src/Misc/layoutroot/run.sh` and `run-helper.sh.template` (who may start
# it, which ends are tried again, which status is handed on) and `src/Runner.Common/Constants.cs` (the statuses).
# It is looser in this: it knows neither Docker nor certificates nor signals, and waits for no update.

folder=$(cd -P "$(dirname "$0")" && pwd)
says_deprecated=$ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE

# Starts the listener once, and ends as the helper does.
helper() {
    if [ "$(id -u)" -eq 0 ] && [ -z "$RUNNER_ALLOW_RUNASROOT" ]; then
        echo 'Must not run interactively with sudo'
        return 1
    fi
    python3 "$folder/runner.py" run "$@"
    code=$?
    if [ "$says_deprecated" = 1 ] && [ "$code" -eq 7 ]; then
        echo "Runner listener exit with deprecated version exit code: $code."
        return "$code"
    fi
    echo "the listener ended with $code"
    case $code in
    2)
        sleep 5
        return 2
        ;;
    3 | 4) return 2 ;;
    *) return 0 ;;
    esac
}

while :; do
    # The helper is written anew where the runner is: in a folder that its user may not write to is none.
    touch "$folder/run-helper.sh"
    if [ -e "$folder/run-helper.sh" ]; then
        helper "$@"
        code=$?
    else
        code=127
    fi
    if [ "$code" -eq 2 ]; then
        echo 'Restarting runner...'
        continue
    fi
    echo 'Exiting runner...'
    if [ "$says_deprecated" = 1 ] && [ "$code" -eq 7 ]; then
        exit "$code"
    fi
    exit 0
done
