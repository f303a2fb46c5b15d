"""A small runner that speaks Gitea's runner protocol (Connect RPC as JSON) for one job, as gitea-runner
(act_runner before 1.0.0) does: its registration is read from `.runner` in the folder it starts in, as
strictly as that program's internal/pkg/config/registration.go reads it (1.0.8)."""

import base64
import json
import re
import subprocess
import sys
import time
import urllib.request

STATE = json.load(open(".runner"))
FIELDS = {
    "WARNING": str,
    "id": int,
    "uuid": str,
    "name": str,
    "token": str,
    "address": str,
    "labels": list,
    "ephemeral": bool,
}
for field, kind in FIELDS.items():
    if type(STATE.get(field, kind())) is not kind:
        sys.exit(f"failed to load registration file: {field} is {STATE[field]!r}")
BASE = STATE["address"] + "/api/actions/runner.v1.RunnerService/"


def call(method, body):
    headers = {
        "Content-Type": "application/json",
        "x-runner-uuid": STATE["uuid"],
        "x-runner-token": STATE["token"],
    }
    request = urllib.request.Request(BASE + method, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def fetch():
    while True:
        task = call("FetchTask", {"tasksVersion": "0"}).get("task")
        if task:
            return task
        time.sleep(0.2)


def commands(task):
    """The `run:` lines of the one job, each a command of its own."""
    text = base64.b64decode(task["workflowPayload"]).decode()
    return [line.strip("'\" ") for line in re.findall(r"^\s*-?\s*run:\s*(.+)$", text, re.M)]


labels = [label.split(":")[0] for label in STATE["labels"]]
call("Declare", {"version": "drover-test", "labels": labels})
task = fetch()
began, rows, result = now(), [], "RESULT_SUCCESS"
for command in commands(task):
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    rows += [{"time": now(), "content": line} for line in (ran.stdout + ran.stderr).splitlines()]
    if ran.returncode != 0:
        result = "RESULT_FAILURE"
        break
call("UpdateLog", {"taskId": task["id"], "index": "0", "rows": rows, "noMore": True})
state = {"id": task["id"], "result": result, "startedAt": began, "stoppedAt": now(), "steps": []}
call("UpdateTask", {"state": state, "outputs": {}})
