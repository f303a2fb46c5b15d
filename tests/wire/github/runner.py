"""A small runner for one job of the tests' GitHub. With a configuration in its environment it is that
runner; with a registration token (`URL TOKEN LABELS NAME`, as run-once.sh is called) it registers.

How it is given its configuration follows actions/runner 2.336.0: `src/Runner.Listener/CommandSettings.cs`
reads each option from ACTIONS_RUNNER_INPUT_ and its name as well, and `src/Runner.Listener/Runner.cs`
decodes `jitconfig` as base64. What is in it and what is spoken then is a form of the tests' own
(`tests/wire/github/guest.rs`), and run-once.sh is drover's own name for a script of the operator's."""

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request


def call(base, what, body):
    request = urllib.request.Request(base + "/guest/" + what, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


config = os.environ.get("ACTIONS_RUNNER_INPUT_JITCONFIG")
if len(sys.argv) == 5:
    url, token, labels, name = sys.argv[1:]
    base = "/".join(url.split("/")[:3])
    config = call(base, "register", {"token": token, "labels": labels, "name": name})["config"]
config = json.loads(base64.b64decode(config))
session = {"session": config["session"]}
while "command" not in (job := call(config["url"], "next", session)):
    time.sleep(0.2)
ran = subprocess.run(["sh", "-c", job["command"]])
call(config["url"], "done", {**session, "ok": ran.returncode == 0})
