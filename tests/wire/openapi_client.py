"""The API as `/openapi.json` describes it, driven by a client that is generated from that document.

Takes the service's URL, a file with an operator's token, and a folder for the client. Prints
`openapi: N operations ok` when the document is valid, each of its operations has a function, and a lease
went its way by those functions alone.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
from openapi_spec_validator import validate

URL, TOKEN, FOLDER = sys.argv[1], Path(sys.argv[2]).read_text().strip(), Path(sys.argv[3])
PACKAGE = "drover_client"


def step(condition, what):
    if not condition:
        raise SystemExit(f"openapi: failed at: {what}")


def generate():
    """Writes the client; a warning of the generator, such as of an operation it leaves out, fails."""
    document = httpx.get(f"{URL}/openapi.json").raise_for_status().json()
    validate(document)
    source, config = FOLDER / "openapi.json", FOLDER / "config.yaml"
    source.write_text(json.dumps(document))
    # Else it formats what it writes, with a program that may not be there.
    config.write_text("post_hooks: []\n")
    program = Path(sys.executable).parent / "openapi-python-client"
    options = ["--meta", "none", "--fail-on-warning", "--path", source, "--config", config]
    made = subprocess.run(
        [program, "generate", *options, "--output-path", FOLDER / PACKAGE], capture_output=True, text=True
    )
    step(made.returncode == 0, f"the client is generated without a warning: {made.stdout}{made.stderr}")
    return [
        operation["operationId"] for path in document["paths"].values() for operation in path.values()
    ]


def functions(names):
    """The module of each operation, by its operationId."""
    sys.path.insert(0, str(FOLDER))
    sys.dont_write_bytecode = True
    files = [file for file in (FOLDER / PACKAGE / "api").glob("*/*.py") if file.stem != "__init__"]
    modules = {file.stem.replace("_", ""): ".".join([PACKAGE, "api", file.parent.name, file.stem]) for file in files}
    lacking = [name for name in names if name.lower() not in modules]
    step(not lacking, f"each operation has a function: {lacking}")
    return {name: importlib.import_module(modules[name.lower()]) for name in names}


def main():
    api = functions(names := generate())
    made, models = (importlib.import_module(f"{PACKAGE}.{name}") for name in ["client", "models"])
    # An answer that the document does not tell of is an error.
    reach = {"base_url": URL, "timeout": 60, "raise_on_unexpected_status": True}
    client = made.AuthenticatedClient(token=TOKEN, **reach)

    lease = api["postLeases"].sync(client=client, body=models.LeaseIn(labels=["linux"], owner="made"))
    step(isinstance(lease, models.LeaseOut) and lease.state == "waiting", f"a lease is asked for: {lease}")
    for _ in range(20):
        lease = api["getLeasesById"].sync(lease.id, client=client, wait_seconds=30)
        if lease.state == "ready":
            break
    step(lease.state == "ready" and lease.ssh.port == 2222, f"the lease gets ready: {lease}")
    agents = api["getAgents"].sync(client=client).agents
    step([one.state for one in agents] == ["Leased"], f"its agent is listed: {agents}")
    longer = api["postLeasesByIdRenew"].sync(lease.id, client=client, body=models.RenewIn(ttl_seconds=7200))
    step(longer.expires_at > lease.expires_at, f"the lease is renewed: {longer}")
    ended = api["deleteLeasesById"].sync_detailed(lease.id, client=client)
    step(ended.status_code == 204, f"the lease is ended: {ended}")
    lease = api["getLeasesById"].sync(lease.id, client=client)
    step(lease.state == "ended", f"the lease has ended: {lease}")
    step(api["getStatus"].sync(client=client) is not None, "the status is read")

    def refused(status, name, answer):
        fits = isinstance(answer.parsed, models.Problem) and answer.status_code == status
        fits = fits and answer.parsed.status == status and answer.parsed.type_.endswith(f":{name}")
        step(fits, f"{status} is a problem: {answer}")

    find, ask = api["getLeasesById"].sync_detailed, api["postLeases"].sync_detailed
    refused(404, "not-found", find("nobodys", client=client))
    refused(400, "invalid-request", find("nobodys", client=client, wait_seconds=301))
    refused(400, "invalid-request", ask(client=client, body=models.LeaseIn()))
    refused(422, "no-template", ask(client=client, body=models.LeaseIn(labels=["solaris"])))
    refused(403, "forbidden", api["postReap"].sync_detailed(client=client, body=models.ReapIn(all_=False)))
    stranger = made.AuthenticatedClient(token="nobodys", **reach)
    refused(401, "unauthorized", api["getStatus"].sync_detailed(client=stranger))
    hook = api["postHooksBySource"].sync_detailed("nobodys", client=made.Client(**reach), body={})
    refused(404, "not-found", hook)
    print(f"openapi: {len(names)} operations ok")


main()
