"""Requests whose answer comes before their body was read, twenty times each, by Python's own client.

Reads the simulator's first line (JSON) from the file named as the only argument and prints
`refused bodies: N steps ok` when each got Proxmox's answer.
"""

import http.client
import json
import ssl
import sys

facts = json.load(open(sys.argv[1]))
context = ssl.create_default_context(cafile=facts["caFile"])
address = facts["url"].removeprefix("https://")
token = f"PVEAPIToken={facts['tokenId']}={facts['tokenSecret']}"
form = "application/x-www-form-urlencoded"
config = f"/api2/json/nodes/{facts['node']}/qemu/{facts['templateVmId']}/config"
steps = 0


def ask(method, path, body=None, chunked=False, wanted=None):
    global steps
    client = http.client.HTTPSConnection(address, context=context, timeout=30)
    headers = {"Authorization": token}
    if body is not None:
        headers["Content-Type"] = form
    if chunked:
        headers["Transfer-Encoding"] = "chunked"
        body = iter([body[at : at + 65536] for at in range(0, len(body), 65536)])
    client.request(method, path, body=body, headers=headers, encode_chunked=chunked)
    answer = client.getresponse()
    found = (answer.status, answer.reason)
    answer.read()
    client.close()
    if found != wanted:
        raise SystemExit(f"{method} {path[:60]}: {found}, not {wanted}")
    steps += 1


for _ in range(20):
    small, large = b"description=chunk", b"description=" + b"x" * (3 << 20)
    refused = (501, "chunked transfer encoding not supported")
    ask("PUT", config, small, chunked=True, wanted=refused)
    ask("PUT", config, large, chunked=True, wanted=refused)
    ask("PUT", config, large, wanted=(501, "for data too large"))
    ask("DELETE", config, b"purge=1", wanted=(501, "Unexpected content for method 'DELETE'"))
    long = f"/api2/json/version?{'x' * 9000}"
    ask("GET", long, wanted=(400, "Parameter verification failed."))
print(f"refused bodies: {steps} steps ok")
