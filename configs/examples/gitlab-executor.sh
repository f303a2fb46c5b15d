#!/bin/sh
# A custom executor of gitlab-runner: each job on a machine of drover's, leased in `prepare` and given
# back in `cleanup`. Unverified against a GitLab server. In the runner's config.toml:
#   [[runners]]
#     executor = "custom"
#     builds_dir = "/tmp/builds"
#     cache_dir = "/tmp/cache"
#     [runners.custom]
#       config_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       config_args = ["config"]
#       prepare_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       prepare_args = ["prepare"]
#       run_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       run_args = ["run"]
#       cleanup_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       cleanup_args = ["cleanup"]
# DROVER_URL and DROVER_TOKEN_FILE stand in /etc/gitlab-runner/drover.env, as in a shell. A job's variable
# DROVER_LABELS says what its machine must be. The image needs bash, git and, for artifacts and
# caches, gitlab-runner. What begins with CUSTOM_ENV_ comes from jobs and is believed nothing.
set -u
if [ -r /etc/gitlab-runner/drover.env ]; then
  set -a
  # shellcheck source=/dev/null
  . /etc/gitlab-runner/drover.env
  set +a
fi

# gitlab-runner gives each job a TMPDIR of its own, which goes with the job.
login=$TMPDIR/login lease=$TMPDIR/lease
system_failure() { echo "drover: $*" >&2; exit "$SYSTEM_FAILURE_EXIT_CODE"; }

case $1 in
config)
  echo '{"builds_dir": "/tmp/builds", "cache_dir": "/tmp/cache", "builds_dir_is_shared": false, "driver": {"name": "drover"}}'
  ;;
prepare)
  # The lease ends by itself some time after the job must have, even if nobody cleans up; a day is
  # the most that drover gives.
  timeout=${CUSTOM_ENV_CI_JOB_TIMEOUT:-3600}
  case $timeout in 0* | *[!0-9]* | ??????*) timeout=3600 ;; esac
  XDG_RUNTIME_DIR=$TMPDIR drover lease --labels="${CUSTOM_ENV_DROVER_LABELS:-linux}" \
    --ttl="$((timeout < 85800 ? timeout + 600 : 86400))s" --wait=30m --owner="gitlab job ${CUSTOM_ENV_CI_JOB_ID:-}" \
    >"$TMPDIR/said" || system_failure "no machine"
  sed -n 's/^log in:  //p' "$TMPDIR/said" >"$login"
  sed -n 's/^release: drover release //p' "$TMPDIR/said" >"$lease"
  ;;
run)
  # $2 is the script, $3 the stage's name; a stage whose connection is lost is the system's failure.
  eval "$(cat "$login") bash" <"$2"
  code=$?
  [ "$code" != 255 ] || system_failure "the connection was lost in stage $3"
  if [ "$code" != 0 ]; then
    # What `allow_failure: exit_codes` looks at.
    [ -z "${BUILD_EXIT_CODE_FILE:-}" ] || echo "$code" >"$BUILD_EXIT_CODE_FILE"
    exit "$BUILD_FAILURE_EXIT_CODE"
  fi
  ;;
cleanup)
  # Also after a `prepare` that failed: then there is nothing to give back.
  [ ! -s "$lease" ] || XDG_RUNTIME_DIR=$TMPDIR drover release "$(cat "$lease")"
  ;;
esac
