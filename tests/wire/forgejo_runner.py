#!/usr/bin/env python3
"""A small runner that does one job of a Forgejo's, as `forgejo-runner one-job` does.

It follows forgejo-runner 13: `internal/app/cmd/cmd.go` (the options, at bbc747c06795), `args.go` (the connection
that they name, at 66625efb26ca), `job.go` (what happens in which order, at ec418656367b),
`internal/app/poll/single.go` (at ec418656367b), `internal/pkg/config/config.go` and `registration.go` (both
files, by type, at c456ed039e6d and 09d484ee55f1) and `internal/pkg/labels/labels.go` (at 5707360ce028): commits
of its public fork creator-signal/fork-forgejo-runner. It is stricter in this: a key of its configuration that
nobody reads is refused. It is looser in this: of YAML it reads JSON alone, of a workflow its `run:` lines, and
it knows no `--handle`.

What it speaks is the same protocol as Gitea's (`internal/pkg/client/http.go` at 0988a0cb1e0b of
project-mirrors/forgejo-runner)."""

import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid

# Options of `one-job`, each with whether it has a value.
OPTIONS = {
    "--config": True,
    "--url": True,
    "--uuid": True,
    "--token-url": True,
    "--label": True,
    "--fetch-interval": True,
    "--handle": True,
    "--wait": False,
}
SHORT = {"-c": "--config", "-w": "--wait"}
LEVELS = ["trace", "debug", "info", "warn", "warning", "error", "fatal", "panic"]
CONFIG = {
    "log": {"level": str, "job_level": str},
    "runner": {"file": str, "capacity": int, "labels": [str]},
    "server": {"connections": dict},
}


def fail(text):
    print(f"Error: {text}", file=sys.stderr)
    sys.exit(1)


def options(words):
    """What cobra makes of the words of the command."""
    if words[:1] != ["one-job"]:
        fail(f'unknown command "{(words or [""])[0]}" for "forgejo-runner"')
    found, rest = {name: [] for name in OPTIONS}, words[1:]
    while rest:
        name, mark, value = rest.pop(0).partition("=")
        name = SHORT.get(name, name)
        if not name.startswith("-"):
            fail(f'accepts at most 1 arg(s): "{name}"')
        if name not in OPTIONS:
            fail(f"unknown flag: {name}")
        if OPTIONS[name] and not mark:
            if not rest:
                fail(f"flag needs an argument: {name}")
            value = rest.pop(0)
        found[name].append(value)
    return found


def typed(value, kind, place):
    """Refuses a value that Go would not decode into that type."""
    if isinstance(kind, dict):
        typed(value, dict, place)
        for key, inner in value.items():
            if key not in kind:
                fail(f"{place}: nobody reads {key}")
            typed(inner, kind[key], f"{place}.{key}")
    elif isinstance(kind, list):
        typed(value, list, place)
        for at, inner in enumerate(value):
            typed(inner, kind[0], f"{place}[{at}]")
    elif type(value) is not kind:
        fail(f"{place}: cannot unmarshal {value!r} into {kind.__name__}")


def label(text):
    """The name of a label that is run on this machine itself."""
    base, mark, query = text.partition("?")
    name, *rest = base.split(":", 2)
    if name != name.strip():
        fail(f'malformed `label` "{text}": starting or ending with a space is invalid')
    schema = (rest or ["docker"])[0]
    if schema not in ("host", "docker", "lxc"):
        fail(f'malformed `label` "{text}": unsupported schema: {schema}')
    if schema == "host" and len(rest) > 1:
        fail(f'malformed `label` "{text}": schema: host does not have arguments')
    if mark:
        fail(f'malformed `label` "{text}": option "{query}"')
    if schema != "host":
        fail("daemon Docker Engine socket not found and docker_host config was invalid")
    return name


def configured(path):
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        fail(f"invalid configuration: cannot parse config file {path!r}: {error}")
    typed(config, CONFIG, "invalid configuration")
    for level in config.get("log", {}).values():
        if level not in LEVELS:
            fail(f"invalid configuration: invalid `log` settings: {level!r}")
    return config


def connection(given, config):
    """The one connection, which the command, the configuration or a registration names."""
    own = [given[name] for name in ("--url", "--uuid", "--token-url", "--label")]
    is_registered = os.path.exists(config.get("runner", {}).get("file") or ".runner")
    others = len(config.get("server", {}).get("connections", {})) + is_registered
    if not any(own):
        fail("this stand-in reads its connection from its command alone")
    if others:
        fail(
            "invalid configuration: server connection conflict between program arguments and config; "
            "only one source can provide server connections"
        )
    values = {}
    for name in ("--url", "--uuid", "--token-url"):
        values[name] = (given[name] or [""])[-1]
        if not values[name]:
            fail(f"invalid configuration: `{name[2:]}` is empty")
    url = urllib.parse.urlsplit(values["--url"])
    if url.scheme not in ("http", "https") or not url.hostname:
        fail(f"invalid configuration: malformed `url` {values['--url']!r}")
    try:
        number = str(uuid.UUID(values["--uuid"]))
    except ValueError:
        fail(f"invalid configuration: malformed `uuid` {values['--uuid']!r}")
    if not values["--token-url"].startswith("file:"):
        fail(f"invalid configuration: invalid `token-url`: {values['--token-url']!r}")
    path = urllib.parse.unquote(urllib.parse.urlsplit(values["--token-url"]).path)
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        fail(f"invalid configuration: invalid `token-url`: {error}")
    if not re.fullmatch(r"[0-9A-Za-z_-]+", token):
        fail("invalid configuration: token contains invalid characters")
    labels = [label(text) for text in given["--label"]]
    labels = labels or [label(text) for text in config.get("runner", {}).get("labels", [])]
    return values["--url"], number, token, labels


given = options(sys.argv[1:])
URL, NUMBER, TOKEN, LABELS = connection(given, configured((given["--config"] or [""])[-1]))
BASE = URL.rstrip("/") + "/api/actions/runner.v1.RunnerService/"


def call(method, body):
    headers = {
        "Content-Type": "application/json",
        "x-runner-uuid": NUMBER,
        "x-runner-token": TOKEN,
    }
    request = urllib.request.Request(BASE + method, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def fetch():
    while True:
        task = call("FetchTask", {"tasksVersion": "0"}).get("task")
        if task:
            return task
        if not given["--wait"]:
            fail_without_task()
        time.sleep(0.2)


def fail_without_task():
    print("Error: no task received", file=sys.stderr)
    sys.exit(2)


def steps(task):
    """The `run:` lines of the one job, each a command of its own."""
    text = base64.b64decode(task["workflowPayload"]).decode()
    return [line.strip("'\" ") for line in re.findall(r"^\s*-?\s*run:\s*(.+)$", text, re.M)]


call("Declare", {"version": "drover-test", "labels": LABELS})
task = fetch()
began, rows, result = now(), [], "RESULT_SUCCESS"
for command in steps(task):
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    rows += [{"time": now(), "content": line} for line in (ran.stdout + ran.stderr).splitlines()]
    if ran.returncode != 0:
        result = "RESULT_FAILURE"
        break
call("UpdateLog", {"taskId": task["id"], "index": "0", "rows": rows, "noMore": True})
state = {"id": task["id"], "result": result, "startedAt": began, "stoppedAt": now(), "steps": []}
call("UpdateTask", {"state": state, "outputs": {}})
