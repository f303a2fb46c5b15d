#!/usr/bin/env python3
"""A small runner that speaks GitLab's runner API for one job, as `gitlab-runner run-single
--max-builds 1 --wait-timeout SECONDS` does: what it logs in with stands in its environment.

It follows gitlab-runner 19.4.0 at d79f3e7b89ab: `commands/single.go` (the options, what must be given, when
it ends), `common/config.go` (the environment), `common/network.go` (the bodies), `network/gitlab.go`
(`RequestJob`, `PatchTrace`, `UpdateJob` and their headers), `network/client.go` (the URL). It is looser in
this: of a job it reads the scripts alone, and asks for one five times a second."""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib

options = argparse.ArgumentParser(prog="gitlab-runner", allow_abbrev=False)
commands = options.add_subparsers(dest="command", required=True)
single = commands.add_parser("run-single", allow_abbrev=False)
single.add_argument("--url", "-u", default=os.environ.get("CI_SERVER_URL", ""))
single.add_argument("--token", "-t", default=os.environ.get("CI_SERVER_TOKEN", ""))
single.add_argument("--executor", default=os.environ.get("RUNNER_EXECUTOR", ""))
single.add_argument("--max-builds", type=int, default=0)
single.add_argument("--wait-timeout", type=int, default=0)
given = options.parse_args()
for name in ("url", "token", "executor"):
    if not getattr(given, name):
        sys.exit(f"FATAL: Missing {name.title()}")
if given.executor != "shell":
    sys.exit(f"FATAL: Unknown executor: {given.executor}")
TOKEN = given.token
assert TOKEN not in " ".join(sys.argv), "its token is in the list of processes"
BASE = given.url.rstrip("/").removesuffix("/ci") + "/api/v4/jobs/"

FEATURES = ["trace_reset", "trace_checksum", "trace_size", "cancelable", "cancel_gracefully"]
INFO = {
    "name": "gitlab-runner",
    "version": "19.4.0",
    "revision": "d79f3e7b",
    "platform": "linux",
    "architecture": "amd64",
    "executor": given.executor,
    "shell": "bash",
    "features": dict.fromkeys(FEATURES, True),
    "config": {"gpus": ""},
}
LAST = ""


def call(method, path, body, headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    request = urllib.request.Request(BASE + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def request_job():
    global LAST
    body = {"info": INFO, "token": TOKEN, "system_id": "r_drovertest01"}
    if LAST:
        body["last_update"] = LAST
    status, headers, answer = call("POST", "request", body, {"RUNNER-TOKEN": TOKEN})
    LAST = headers.get("X-GitLab-Last-Update") or LAST
    if status == 403:
        print("Checking for jobs... forbidden", file=sys.stderr)
        time.sleep(1)
    return json.loads(answer) if status == 201 else None


def update(job, state, log=b"", **more):
    output = {}
    if log:
        output = {"checksum": f"crc32:{zlib.crc32(log):08x}", "bytesize": len(log)}
        more["checksum"] = output["checksum"]
    body = {"info": INFO, "token": job["token"], "state": state, "output": output, **more}
    status, *_ = call("PUT", str(job["id"]), body, {"JOB-TOKEN": job["token"]})
    assert status == 200, status


def trace(job, log):
    """The log in two pieces, each with where it belongs."""
    middle = (len(log) + 1) // 2
    for start, part in ((0, log[:middle]), (middle, log[middle:])):
        if not part:
            continue
        headers = {
            "JOB-TOKEN": job["token"],
            "Content-Range": f"{start}-{start + len(part) - 1}",
            "Content-Type": "text/plain",
        }
        status, *_ = call("PATCH", f"{job['id']}/trace?debug_trace=false", part, headers)
        assert status == 202, status


def build(job):
    update(job, "running")
    code, log = 0, b""
    for step in job["steps"]:
        for line in step["script"]:
            if code == 0:
                ran = subprocess.run(["sh", "-c", line], capture_output=True)
                log, code = log + ran.stdout + ran.stderr, ran.returncode
    trace(job, log)
    if code == 0:
        update(job, "success", log)
    else:
        update(job, "failed", log, failure_reason="script_failure", exit_code=code)


left, forever, last = given.max_builds, given.max_builds == 0, time.monotonic()
while forever or left > 0:
    job = request_job()
    if job:
        build(job)
        left, last = left - 1, time.monotonic()
    elif given.wait_timeout > 0 and time.monotonic() - last > given.wait_timeout:
        print("This runner has not received a job in", given.wait_timeout, "seconds, so now exiting")
        break
    else:
        time.sleep(0.2)
