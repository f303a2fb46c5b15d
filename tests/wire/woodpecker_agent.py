"""A small agent that runs one workflow, as `woodpecker-agent` does with a single workflow: what it is
stands in its environment. In the place of gRPC it speaks a JSON of the fake's own.

It follows woodpecker-agent 3.17.0: `cmd/agent/core/flags.go` (the environment) and
`cmd/agent/core/agent.go` (the labels that every agent has). `org-id` is the server's to say
(`server/model/agent.go`): here the agent says it for the fake."""

import json
import os
import subprocess
import time
import urllib.request

ENV = {name[11:]: value for name, value in os.environ.items() if name.startswith("WOODPECKER_")}
assert (ENV["MAX_WORKFLOWS"], ENV["AGENT_SINGLE_WORKFLOW"]) == ("1", "true"), ENV
assert (ENV["BACKEND"], ENV["GRPC_SECURE"]) == ("local", "false"), ENV

# What an agent says of itself, and what it was told to say beside it.
LABELS = {"hostname": ENV["HOSTNAME"], "platform": "linux/amd64", "backend": ENV["BACKEND"]}
LABELS |= {"repo": "*", "org-id": "*"}
LABELS |= dict(pair.split("=", 1) for pair in ENV["AGENT_LABELS"].split(","))


def call(what, body):
    headers = {"Content-Type": "application/json", "X-Agent-Secret": ENV["AGENT_SECRET"]}
    url = f"http://{ENV['SERVER']}/rpc/{what}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or "null")


while (job := call("next", {"labels": LABELS})) is None:
    time.sleep(0.2)
ran = subprocess.run(["sh", "-c", job["run"]], capture_output=True, text=True)
call("done", {"id": job["id"], "good": ran.returncode == 0, "log": ran.stdout + ran.stderr})
