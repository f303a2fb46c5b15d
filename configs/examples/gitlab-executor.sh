#!/bin/sh
# A custom executor of gitlab-runner: each job on a machine of drover's, leased in `prepare` and given
# back in `cleanup`. Unverified against a GitLab server. In the runner's config.toml:
#   [[runners]]
#     executor = "custom"
#     environment = ["DROVER_URL=https://drover.example.com", "DROVER_TOKEN_FILE=/etc/gitlab-runner/drover-token"]
#     [runners.custom]
#       config_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       config_args = ["config"]
#       prepare_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       prepare_args = ["prepare"]
#       run_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       run_args = ["run"]
#       cleanup_exec = "/etc/gitlab-runner/gitlab-executor.sh"
#       cleanup_args = ["cleanup"]
# A job's variable DROVER_LABELS says what its machine must be. The image needs bash, git and, for
# artifacts and caches, gitlab-runner.
set -u

# gitlab-runner gives each job a TMPDIR of its own, which goes with the job.
login=$TMPDIR/login lease=$TMPDIR/lease
system_failure() { echo "drover: $*" >&2; exit "$SYSTEM_FAILURE_EXIT_CODE"; }
setting() { eval "printf '%s' \"\${CUSTOM_ENV_$1:-$2}\""; }

case $1 in
config)
  echo '{"builds_dir": "/tmp/builds", "cache_dir": "/tmp/cache", "builds_dir_is_shared": false, "driver": {"name": "drover"}}'
  ;;
prepare)
  # The lease ends by itself some time after the job must have, even if nobody cleans up.
  ttl=$(($(setting CI_JOB_TIMEOUT 3600) + 600))
  XDG_RUNTIME_DIR=$TMPDIR drover lease --labels "$(setting DROVER_LABELS linux)" --ttl "${ttl}s" \
    --owner "gitlab job $(setting CI_JOB_ID '?')" --wait 30m >"$TMPDIR/said" \
    || system_failure "no machine"
  sed -n 's/^log in:  //p' "$TMPDIR/said" >"$login"
  sed -n 's/^release: drover release //p' "$TMPDIR/said" >"$lease"
  ;;
run)
  # $2 is the script, $3 the stage's name; a stage whose connection is lost is the system's failure.
  eval "$(cat "$login") bash" <"$2"
  case $? in
  0) ;;
  255) system_failure "the connection was lost in stage $3" ;;
  *) exit "$BUILD_FAILURE_EXIT_CODE" ;;
  esac
  ;;
cleanup)
  # Also after a `prepare` that failed: then there is nothing to give back.
  [ ! -s "$lease" ] || XDG_RUNTIME_DIR=$TMPDIR drover release "$(cat "$lease")"
  ;;
esac
