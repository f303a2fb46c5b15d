"""A small listener for one job of the tests' GitHub, as actions/runner starts one: `run`, with its
configuration in its environment. With a registration token (`URL TOKEN LABELS NAME`, as run-once.sh is
called) it registers first.

It follows 2.336.0 at 258d6c857db3: `src/Runner.Listener/CommandSettings.cs` (each option is read from
ACTIONS_RUNNER_INPUT_ and its name as well, and taken out of the environment), `Runner.cs` (`jitconfig` is
base64 of JSON, which has the base64 of each file by its name; what is logged in which order),
`src/Runner.Common/ConfigurationStore.cs` (what the files hold), `src/Sdk/WebApi/WebApi/BrokerHttpClient.cs`
(how a version that is too old is refused) and `src/Runner.Listener/Program.cs` (the statuses it ends with). What
is spoken is a form of the tests' own (`tests/wire/github/guest.rs`), and run-once.sh is drover's own name for
a script of the operator's."""

import base64
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

# The version that it is; a test may have another.
VERSION = os.environ.get("DROVER_TEST_RUNNER_VERSION", "2.336.0")
FOLDER = pathlib.Path(__file__).resolve().parent
TERMINATED, RETRYABLE, DEPRECATED = 1, 2, 7


def call(base, what, body):
    request = urllib.request.Request(base + "/guest/" + what, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def say(text):
    print(f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}: {text}", flush=True)


def end(text, code):
    print(f"An error occurred: {text}", flush=True)
    sys.exit(code)


def refused(error):
    """Ends as the listener does when it is refused."""
    if error.code == 401:
        end("The runner registration has been deleted from the server", TERMINATED)
    try:
        told = json.load(error)
    except ValueError:
        told = {}
    too_old = ("actions-broker-listener", "RunnerVersionTooOld")
    if error.code == 403 and (told.get("source"), told.get("errorKind")) == too_old:
        says = os.environ.get("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "").lower()
        end(told["errorMessage"], DEPRECATED if says in ("1", "true", "$true") else TERMINATED)
    end(f"{error.code}", RETRYABLE)


def configure(encoded):
    """Writes the files of its configuration beside itself."""
    try:
        files = json.loads(base64.b64decode(encoded, validate=True))
        for name, content in files.items():
            (FOLDER / name).write_bytes(base64.b64decode(content, validate=True))
    except (ValueError, OSError) as error:
        end(error, TERMINATED)


def listen():
    settings = json.loads((FOLDER / ".runner").read_text(encoding="utf-8"))
    login = json.loads((FOLDER / ".credentials").read_text(encoding="utf-8"))
    if not (settings["Ephemeral"] and settings["DisableUpdate"] and settings["UseV2Flow"]):
        end("this listener is for one job, and does not update itself", TERMINATED)
    base, own = settings["ServerUrlV2"], {"session": login["Data"]["clientId"]}
    call(base, "session", {**own, "name": settings["AgentName"], "version": VERSION})
    print("\n√ Connected to GitHub\n", flush=True)
    print(f"Current runner version: '{VERSION}'", flush=True)
    say("Listening for Jobs")
    try:
        while "command" not in (job := call(base, "next", own)):
            time.sleep(0.2)
        say(f"Running job: {job['name']}")
        ran = subprocess.run(["sh", "-c", job["command"]])
        call(base, "done", {**own, "ok": ran.returncode == 0})
        result = "Succeeded" if ran.returncode == 0 else "Failed"
        say(f"Job {job['name']} completed with result: {result}")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            call(base, "gone", own)
        raise


encoded = os.environ.pop("ACTIONS_RUNNER_INPUT_JITCONFIG", "")
strange = [name for name in os.environ if name.startswith("ACTIONS_RUNNER_INPUT_")]
if strange:
    end(f"this listener reads no {', '.join(strange)}", TERMINATED)
if len(sys.argv) == 5:
    url, token, labels, name = sys.argv[1:]
    base = "/".join(url.split("/")[:3])
    encoded = call(base, "register", {"token": token, "labels": labels, "name": name})["config"]
elif sys.argv[1:] != ["run"]:
    end(f"Unrecognized command-line input arguments: {sys.argv[1:]}", TERMINATED)
if encoded:
    configure(encoded)
if not (FOLDER / ".runner").exists():
    end("Runner is not configured.", TERMINATED)
try:
    listen()
except urllib.error.HTTPError as error:
    refused(error)
except OSError as error:
    end(error, RETRYABLE)
