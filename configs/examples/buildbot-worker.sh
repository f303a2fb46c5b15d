#!/bin/sh
# Runs one Buildbot worker on a machine of drover's, by the user data that buildbot_drover.py gives its
# lease. Part of the image, run as the login user once user data is there, such as by these units:
#   /etc/systemd/system/buildbot-worker.path      [Path] PathExistsGlob=/home/debian/.drover-lease/*/env
#                                                 [Install] WantedBy=multi-user.target
#   /etc/systemd/system/buildbot-worker.service   [Service] User=debian
#                                                 ExecStart=/usr/local/bin/buildbot-worker.sh
set -eu
for env in "$HOME"/.drover-lease/*/env; do
  # shellcheck source=/dev/null
  . "$env"
done
folder=$HOME/buildbot-$DROVER_LEASE_ID
buildbot-worker create-worker "$folder" "$BUILDMASTER" "$WORKERNAME" "$WORKERPASS"
exec buildbot-worker start --nodaemon "$folder"
