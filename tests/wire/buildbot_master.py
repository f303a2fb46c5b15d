"""A Buildbot master whose one latent worker is the example's: each change on `main` is a build that
runs the command in its property."""

import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["EXAMPLES"])

from buildbot.plugins import changes, schedulers, steps, util  # noqa: E402
from buildbot_drover import DroverLatentWorker  # noqa: E402

given = json.loads(os.environ["MASTER"])
worker = DroverLatentWorker(
    "ci", given["url"], given["token"], {"labels": ["linux"]}, ("127.0.0.1", given["port"]), given["ttl"]
)
command = ["sh", "-c", util.Property("command")]
BuildmasterConfig = {
    "buildbotNetUsageData": None,
    "protocols": {"pb": {"port": f"tcp:{given['port']}:interface=127.0.0.1"}},
    "workers": [worker],
    "change_source": [changes.PBChangeSource(user="change", passwd="test-only")],
    "schedulers": [
        schedulers.SingleBranchScheduler(
            name="main", change_filter=util.ChangeFilter(branch="main"), builderNames=["build"]
        )
    ],
    "builders": [
        util.BuilderConfig(
            name="build",
            workernames=["ci"],
            factory=util.BuildFactory([steps.ShellCommand(command=command)]),
        )
    ],
}
