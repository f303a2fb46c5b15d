#!/usr/bin/env python3
"""A small agent that runs one workflow at once, as `woodpecker-agent` does: what it is stands in its
environment. In the place of gRPC it speaks a JSON of the fake's own, method by method.

It follows woodpecker-agent 3.17.0 at a4cb541b82de: `cmd/agent/core/flags.go` (the environment, by type),
`cmd/agent/core/agent.go` (the version that both must speak, the labels that every agent has, what happens in
which order), `cmd/agent/core/config.go` (the file in which it keeps its number) and
`agent/rpc/client_grpc.go` (lines are sent once none came for a second; an agent for a single workflow ends
without sending what waits). It is looser in this: it
knows the backend `local` alone, and reports its health with each call."""

import json
import os
import subprocess
import queue
import sys
import threading
import time
import urllib.request

# Variables of the agent, each with how it is read.
FLAGS = {
    "SERVER": str,
    "AGENT_SECRET": str,
    "GRPC_SECURE": bool,
    "HOSTNAME": str,
    "AGENT_CONFIG_FILE": str,
    "AGENT_LABELS": list,
    "MAX_WORKFLOWS": int,
    "AGENT_SINGLE_WORKFLOW": bool,
    "HEALTHCHECK": bool,
    "BACKEND": str,
}
DEFAULTS = {
    "AGENT_CONFIG_FILE": "/etc/woodpecker/agent.conf",
    "AGENT_LABELS": "",
    "MAX_WORKFLOWS": "1",
    "AGENT_SINGLE_WORKFLOW": "false",
    "GRPC_SECURE": "false",
    "HEALTHCHECK": "true",
    "BACKEND": "auto-detect",
}
TRUE = {"1", "t", "T", "true", "TRUE", "True"}
FALSE = {"0", "f", "F", "false", "FALSE", "False"}
# The version of the protocol that it speaks (`rpc/proto/version.go`); a test may have another.
OWN = int(os.environ.get("DROVER_TEST_GRPC_VERSION", "16"))


def read(name, text):
    kind = FLAGS[name]
    if kind is bool:
        if text not in TRUE | FALSE:
            sys.exit(f"could not parse {text!r} as bool value for WOODPECKER_{name}")
        return text in TRUE
    if kind is int:
        return int(text)
    if kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


PREFIX = "WOODPECKER_"
own = {name[len(PREFIX) :]: text for name, text in os.environ.items() if name.startswith(PREFIX)}
for name in own:
    if name not in FLAGS:
        sys.exit(f"nobody reads {PREFIX}{name}")
ENV = {name: read(name, text) for name, text in (DEFAULTS | own).items()}
if ENV["MAX_WORKFLOWS"] != 1 or ENV["GRPC_SECURE"]:
    sys.exit("this stand-in runs one workflow at once, and speaks no TLS")
if ENV["HEALTHCHECK"]:
    sys.exit("cannot listen on address :3000: others on this machine do")


def custom():
    labels = {}
    for pair in ENV["AGENT_LABELS"]:
        key, _, value = pair.partition("=")
        if not key or not value:
            sys.exit(f"key '{key}' does not have a value assigned")
        labels[key] = value
    return labels


def call(what, body):
    headers = {"Content-Type": "application/json", "X-Agent-Secret": ENV["AGENT_SECRET"]}
    url = f"http://{ENV['SERVER']}/rpc/{what}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or "null")


def kept():
    """The number that it had before, where its file says so."""
    try:
        with open(ENV["AGENT_CONFIG_FILE"], encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return -1
    return json.loads(text)["agent_id"] if text.strip() else -1


def keep(number):
    """Whether it could be written: one that could not is taken off the server's list at its end."""
    try:
        with open(ENV["AGENT_CONFIG_FILE"], "w", encoding="utf-8") as file:
            json.dump({"agent_id": number}, file)
        return True
    except OSError:
        return False


number = call("auth", {"agent_id": kept()})["agent_id"]
keep(number)
server = call("version", {})
if server["grpc_version"] != OWN:
    text = (
        f"server version {server['server_version']} does report grpc version "
        f"{server['grpc_version']} but we only understand {OWN}"
    )
    error = {"level": "error", "error": "GRPC version mismatch", "message": text}
    print(json.dumps(error), file=sys.stderr)
    sys.exit(1)
if ENV["BACKEND"] != "local":
    sys.exit(f"cannot find backend engine '{ENV['BACKEND']}'")
info = {
    "version": "3.17.0",
    "backend": ENV["BACKEND"],
    "platform": "linux/amd64",
    "capacity": ENV["MAX_WORKFLOWS"],
    "custom_labels": custom(),
}
call("register", info)
persisted = keep(number)
# What every agent says of itself; what it was told to say wins.
labels = {"hostname": ENV["HOSTNAME"], "platform": "linux/amd64", "backend": ENV["BACKEND"]}
labels |= {"repo": "*"} | custom()
lines = queue.Queue()


def send_lines():
    """Sends what came once nothing more came for a second, whatever became of its workflow."""
    kept = []
    while True:
        try:
            kept.append(lines.get(timeout=1))
        except queue.Empty:
            for job, line in kept:
                call("log", {"id": job, "lines": line})
            kept = []


threading.Thread(target=send_lines, daemon=True).start()
while True:
    while (job := call("next", {"labels": labels})) is None:
        time.sleep(0.2)
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(["sh", "-c", job["run"]], **pipe) as ran:
        for line in ran.stdout:
            lines.put((job["id"], line))
    call("done", {"id": job["id"], "good": ran.returncode == 0})
    if ENV["AGENT_SINGLE_WORKFLOW"]:
        break
if not persisted:
    call("unregister", {})
