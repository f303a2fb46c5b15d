#!/usr/bin/env python3
"""A small runner that speaks Gitea's runner protocol (Connect RPC as JSON) for one job, as gitea-runner
(act_runner before 1.0.0) does: `daemon --config FILE` in the folder of its registration.

It follows act_runner at e6dbe2a1caac (December 2025, what gitea-runner 1.0 was made of):
`internal/app/cmd/cmd.go` (the options), `internal/pkg/config/config.go` and `registration.go` (both files, by
type), `internal/pkg/labels/labels.go` (the form of a label), `internal/app/cmd/daemon.go` (what happens in
which order) and `internal/pkg/client/http.go` (the address and the headers). It is stricter in this: a key of
a file that nobody reads is refused. It is looser in this: of YAML it reads JSON alone, and of a workflow its
`run:` lines; and it tries for seconds, not for a minute, to report the end of its job.

As the real one does (`internal/pkg/report/reporter.go`) it reports while the job runs, and lets the job go on
where that is refused: Gitea answers 500 once the row of a cancelled job's runner is gone."""

import argparse
import base64
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request

LEVELS = ["trace", "debug", "info", "warn", "warning", "error", "fatal", "panic"]
# What each key must be; a list names what each of its elements must be.
CONFIG = {
    "log": {"level": str},
    "runner": {
        "file": str,
        "capacity": int,
        "envs": dict,
        "env_file": str,
        "timeout": str,
        "shutdown_timeout": str,
        "insecure": bool,
        "fetch_timeout": str,
        "fetch_interval": str,
        "labels": [str],
        "github_mirror": str,
    },
    "cache": {"enabled": bool, "dir": str, "host": str, "port": int, "external_server": str},
    "container": dict,
    "host": {"workdir_parent": str},
}
REGISTRATION = {
    "WARNING": str,
    "id": int,
    "uuid": str,
    "name": str,
    "token": str,
    "address": str,
    "labels": [str],
    "ephemeral": bool,
}


def typed(value, kind, place):
    """Refuses a value that Go would not decode into that type."""
    if isinstance(kind, dict):
        typed(value, dict, place)
        for key, inner in value.items():
            if key not in kind:
                sys.exit(f"{place}: nobody reads {key}")
            typed(inner, kind[key], f"{place}.{key}")
    elif isinstance(kind, list):
        typed(value, list, place)
        for at, inner in enumerate(value):
            typed(inner, kind[0], f"{place}[{at}]")
    elif type(value) is not kind:
        sys.exit(f"{place}: cannot unmarshal {value!r} into {kind.__name__}")


def read(path, kind, what):
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{what}: {error}")
    typed(value, kind, what)
    return value


def label(text):
    """The name of a label that is run on this machine itself."""
    name, *rest = text.split(":", 2)
    if (rest or ["host"])[0] not in ("host", "docker"):
        print(f'ignored invalid label "{text}"', file=sys.stderr)
        return None
    if rest[:1] == ["docker"]:
        sys.exit("daemon Docker Engine socket not found and docker_host config was invalid")
    return name


options = argparse.ArgumentParser(prog="gitea-runner", allow_abbrev=False)
commands = options.add_subparsers(dest="command", required=True)
daemon = commands.add_parser("daemon", allow_abbrev=False)
daemon.add_argument("--once", action="store_true")
daemon.add_argument("--config", "-c", default="")
given = options.parse_args()

config = read(given.config, CONFIG, "invalid configuration") if given.config else {}
if config.get("log", {}).get("level", "info") not in LEVELS:
    sys.exit("invalid log level")
runner = config.get("runner", {})
STATE = read(runner.get("file") or ".runner", REGISTRATION, "failed to load registration file")
labels = [label(text) for text in runner.get("labels") or STATE["labels"]]
labels = [name for name in labels if name]
BASE = STATE["address"].rstrip("/") + "/api/actions/runner.v1.RunnerService/"


def call(method, body):
    headers = {
        "Content-Type": "application/json",
        "x-runner-uuid": STATE["uuid"],
        "x-runner-token": STATE["token"],
        "x-runner-version": "drover-test",
    }
    request = urllib.request.Request(BASE + method, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def fetch():
    version = "0"
    while True:
        told = call("FetchTask", {"tasksVersion": version})
        if told.get("task"):
            return told["task"]
        version = told.get("tasksVersion", version)
        time.sleep(0.2)


def steps(task):
    """The `run:` lines of the one job, each a command of its own."""
    text = base64.b64decode(task["workflowPayload"]).decode()
    return [line.strip("'\" ") for line in re.findall(r"^\s*-?\s*run:\s*(.+)$", text, re.M)]


def report(task, began, over):
    """Says each second that the job goes on, whatever is answered."""
    state = {"id": task["id"], "result": "RESULT_UNSPECIFIED", "startedAt": began, "steps": []}
    while not over.wait(1):
        try:
            call("UpdateTask", {"state": state, "outputs": {}})
        except OSError as error:
            print(f"failed to report: {error}", file=sys.stderr)


def close(method, body):
    """Reports at the end, several times where that fails."""
    for _ in range(3):
        try:
            return call(method, body)
        except OSError as error:
            print(f"failed to report: {error}", file=sys.stderr)
            time.sleep(1)
    return call(method, body)


def run(task):
    began, rows, result = now(), [], "RESULT_SUCCESS"
    over = threading.Event()
    reporter = threading.Thread(target=report, args=(task, began, over), daemon=True)
    reporter.start()
    for command in steps(task):
        ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        said = (ran.stdout + ran.stderr).splitlines()
        rows += [{"time": now(), "content": line} for line in said]
        if ran.returncode != 0:
            result = "RESULT_FAILURE"
            break
    over.set()
    reporter.join()
    log = {"taskId": task["id"], "index": "0", "rows": rows, "noMore": True}
    close("UpdateLog", log)
    state = {"id": task["id"], "result": result, "startedAt": began, "stoppedAt": now()}
    close("UpdateTask", {"state": {**state, "steps": []}, "outputs": {}})


call("Declare", {"version": "drover-test", "labels": labels})
run(fetch())
# One that is not made for one job goes on.
while not (given.once or STATE["ephemeral"]):
    run(fetch())
