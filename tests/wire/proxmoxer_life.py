"""A virtual machine's whole life driven by proxmoxer, a client drover's authors did not write.

Reads the simulator's first line (JSON) from the file named as the only argument and prints
`proxmoxer: N steps ok` when every step came out as on a real node.
"""

import json
import os
import sys
import time
from urllib.parse import quote, urlparse

from proxmoxer import ProxmoxAPI
from proxmoxer.core import ResourceException

STEPS = 0


def step(condition, what):
    global STEPS
    if not condition:
        raise SystemExit(f"proxmoxer: failed at: {what}")
    STEPS += 1


def wait(node, upid, want="OK"):
    deadline = time.monotonic() + 60
    while True:
        status = node.tasks(upid).status.get()
        if status["status"] == "stopped":
            step(status["exitstatus"] == want, f"{upid} ended {status['exitstatus']!r}, not {want!r}")
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"proxmoxer: {upid} still runs after 60 s")
        time.sleep(0.05)


def refused(call, text):
    try:
        call()
    except ResourceException as error:
        step(text in str(error), f"expected {text!r} in {str(error)!r}")
        return
    raise SystemExit(f"proxmoxer: a call that must fail with {text!r} succeeded")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        sim = json.loads(file.readline())
    where = urlparse(sim["url"])
    user, token = sim["tokenId"].split("!")
    by_token = ProxmoxAPI(where.hostname, port=where.port, user=user, token_name=token,
                          token_value=sim["tokenSecret"], verify_ssl=sim["caFile"])
    by_password = ProxmoxAPI(where.hostname, port=where.port, user=sim["adminUser"],
                             password=sim["adminPassword"], verify_ssl=sim["caFile"])
    for api in (by_token, by_password):
        step(api.version.get()["release"] in ("8.4", "9.2"), "version")

    api, name = by_password, sim["node"]
    node = api.nodes(name)
    step(any(entry["node"] == name for entry in api.nodes.get()), "the node is listed")
    template = next(vm for vm in node.qemu.get() if vm.get("template"))
    vmid = int(api.cluster.nextid.get())

    wait(node, node.qemu(template["vmid"]).clone.post(newid=vmid, name="by-proxmoxer", full=1))
    vm = node.qemu(vmid)
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBtYqSfIE1oxTgvkpJZ1jF+8PyjAdJsd1tOqjzVZCcnP someone@there"
    vm.config.put(cores=2, memory=1024, ciuser="debian", sshkeys=quote(key, safe=""),
                  ipconfig0="ip=dhcp", tags="B;a;b", description="two\nlines", agent="enabled=1")
    config = vm.config.get()
    step(config["tags"] == "a;b", "tags are sorted, lower-cased and without doubles")
    step(config["cores"] == 2 and config["description"].rstrip() == "two\nlines", "config is kept")
    with open(os.path.join(os.path.dirname(sys.argv[1]), "life.iso"), "w+b") as image:
        image.write(bytes(32768) + b"\x01CD001\x01" + bytes(8185))
        image.seek(0)
        wait(node, node.storage("local").upload.post(content="iso", filename=image))
    volid = "local:iso/life.iso"
    sizes = {item["volid"]: item["size"] for item in node.storage("local").content.get(content="iso")}
    step(sizes.get(volid) == 40960, f"the disc image went up: {sizes}")
    vm.config.put(net1="virtio,bridge=vmbr0,tag=20,firewall=1", net2="e1000=BC:24:11:AA:BB:CC,bridge=vmbr0",
                  ide3=f"{volid},media=cdrom")
    cards = vm.config.get()
    step("tag=20" in cards["net1"] and cards["net2"].startswith("e1000=BC:24:11:AA:BB:CC"), "more cards")
    step(cards["ide3"].startswith(volid), "the disc is in its drive")
    wait(node, vm.resize.put(disk="scsi0", size="12G"))
    wait(node, vm.resize.put(disk="scsi0", size="1G"), "shrinking disks is not supported")
    refused(lambda: vm.config.put(cores="many"), "type check ('integer') failed")
    refused(lambda: api.cluster.nextid.get(vmid=vmid), "already exists")
    refused(lambda: vm.agent.ping.post(), "is not running")

    wait(node, vm.status.start.post())
    step(vm.status.current.get()["status"] == "running", "it runs")
    refused(vm.delete, "is running - destroy failed")
    deadline = time.monotonic() + 60
    while True:
        try:
            vm.agent.ping.post()
            break
        except ResourceException as error:
            step("QEMU guest agent is not running" in str(error), "the agent is awaited")
            if time.monotonic() > deadline:
                raise SystemExit("proxmoxer: no guest agent after 60 s") from error
            time.sleep(0.05)
    while True:
        faces = vm.agent("network-get-interfaces").get()["result"]
        mac = config["net0"].split("=")[1].split(",")[0].lower()
        mine = [face for face in faces if face.get("hardware-address", "").lower() == mac]
        if mine and mine[0].get("ip-addresses"):
            break
        if time.monotonic() > deadline:
            raise SystemExit("proxmoxer: no address after 60 s")
        time.sleep(0.05)
    step(True, "net0's interface has an address")

    wait(node, vm.snapshot.post(snapname="before"))
    vm.config.put(name="renamed")
    step({entry["name"] for entry in vm.snapshot.get()} == {"before", "current"}, "snapshots are listed")
    wait(node, vm.snapshot("before").rollback.post())
    step(vm.config.get()["name"] == "by-proxmoxer", "rolled back")
    wait(node, vm.snapshot("before").delete())
    wait(node, vm.status.stop.post())
    wait(node, vm.delete())
    wait(node, node.storage("local").content(volid).delete())
    step(not node.storage("local").content.get(content="iso"), "the disc image is gone")
    refused(vm.config.get, f"Configuration file 'nodes/{name}/qemu-server/{vmid}.conf' does not exist")
    step(all(int(guest["vmid"]) != vmid for guest in api.cluster.resources.get(type="vm")), "it is gone")
    print(f"proxmoxer: {STEPS} steps ok")


main()
