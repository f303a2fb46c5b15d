"""Types the commands of README.md and the quickstart on a new machine, against a simulated cluster.

    readme.py check FOLDER   each command of the pages is typed below, or has a reason why not
    readme.py type FOLDER    as root in a machine with a real systemd that is thrown away

FOLDER has README.md, quickstart.md and simulator.md; to type, also the package, and `bwrap` for the
simulated guests. The commands come from the pages, in their order: here stands what each must print.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

# The longest that one command may take, in seconds: the machine is emulated.
COMMAND_LIMIT = 300

# What a page says => what is typed. Nothing else differs.
STANDS_FOR = {
    # The simulator's guests are at other addresses than a network's: its page says so.
    "drover init": "drover init --ssh-port 2222 --guest-networks 127.77.0.0/16",
    "https://pve1.example.com:8006": "https://127.0.0.1:8006",
    "--fingerprint AB:CD": "--fingerprint {fingerprint}",
    # The agent that is there.
    "AGENT": "{agent}",
}
# What is typed before a command of the pages: it needs a machine that runs.
BEFORE = {"drover machine show AGENT": "drover lease --labels linux"}

# The simulated cluster: three nodes with the storages of a new Proxmox VE, a template image, and a cloud image
# that the nodes can download.
CLOUD_IMAGE = "https://cloud.debian.org/images/cloud/trixie/20260601-2500/debian-13-genericcloud-amd64.qcow2"
CHECKSUM = "ab" * 64
CLUSTER = f"""
name: rack
nodes: [{{name: pve1}}, {{name: pve2}}, {{name: pve3}}]
storages:
  - {{name: local, type: dir, content: [iso, vztmpl, backup]}}
  - {{name: local-lvm, type: lvmthin, content: [images, rootdir]}}
guests:
  - vmid: 9000
    node: pve1
    template: true
    config:
      {{name: debian-13, memory: "2048", cores: "2", agent: "1", scsihw: virtio-scsi-pci, boot: order=scsi0,
       scsi0: "local-lvm:base-9000-disk-0,size=8G", ide2: "local-lvm:vm-9000-cloudinit,media=cdrom",
       net0: "virtio=BC:24:11:00:00:01,bridge=vmbr0"}}
web:
  - {{url: "{CLOUD_IMAGE}", size: 419430400, sha512: {CHECKSUM}}}
"""

# What init asks, in its order, and what an administrator types. A blank answer takes what it suggests.
FIRST = [
    ("Address of one node", "https://127.0.0.1:8006"),
    ("Is it the same? (yes or no) [no]: ", "yes"),
    ("Administrator, for this run alone", ""),
    ("password of root@pam", "{adminPassword}"),
]
LAST = [
    ("VMIDs of agents", ""),
    ("Labels of the agents", ""),
    ("Pool of the agents", ""),
    ("Login in guests", ""),
    ("Write and make all this? (yes or no) [no]: ", "yes"),
]
ANSWERS = {
    "template": [*FIRST, ("Which one", ""), *LAST],
    "make": [
        *FIRST,
        ("Which one", "make"),
        ("URL of a cloud image", CLOUD_IMAGE),
        ("Its SHA-512 or SHA-256", CHECKSUM),
        ("Node [", ""),
        ("Storage of disks", ""),
        ("Bridge of the agents", ""),
        *LAST,
    ],
}

INSTALL = "apt install ./drover_*.deb"
START = "systemctl enable --now drover"
BUILD = "drover image build debian"
LEASE = "drover lease --labels linux -- uname -a"
SCRIPT = "drover init --node-url https://pve1.example.com:8006 --fingerprint AB:CD --password-file admin --yes"


class Untyped:
    """A command, or a whole section, that is not typed here, and why."""

    def __init__(self, reason):
        self.reason = reason


# What each typed command prints, as a regular expression.
TYPED = {
    INSTALL: r"Set a cluster up by `drover init`",
    "drover init": r"is ready; next:",
    START: r"",
    LEASE: r"(?m)^Linux ",
}
PAGES = {
    "README.md": {
        "Two commands": Untyped("it needs Rust; tests/wire/demo.rs runs the demo"),
        "Your first cluster": {**TYPED, BUILD: r"Done"},
        "Every day": {
            "drover status": r"primary +healthy",
            "drover top": Untyped("it stays until a key; tests/wire/top.rs types its keys"),
            "drover agents --gone": r"singleUse",
            "drover jobs": r"",
            "drover why linux": r"linux",
            "drover leases --state waiting": r"",
            "drover lease --labels linux -- make": Untyped("the simulated machines have no `make`"),
            "drover hold-next linux --for 1h": r"",
            "drover machine show AGENT": r"state +running",
            "drover cordon pve1": r"pve1 is cordoned",
            "drover drain pve1": r"pve1 is drained",
            "drover reload": r"",
            "drover plan --local /etc/drover/drover.yaml": r"nothing to do",
            "drover trace --from 7d --file week.jsonl": r"",
            "drover simulate --trace week.jsonl --wait 10s": r"P95 WAIT",
            "drover sync": Untyped("no repository is configured there; tests/wire/git.rs syncs"),
            "drover templates set linux --rollout pause": r"roll-out paused",
            "drover resync --dry-run": r"",
            "drover image list": r"debian",
            "drover events --since 1h --no-follow": r"Leased",
            "drover help": r"quickstart",
        },
    },
    "quickstart.md": {
        "See it work": Untyped("it needs Rust; tests/wire/demo.rs runs the demo"),
        "On your own cluster": {
            **TYPED,
            BUILD: Untyped("this walk takes a template image that exists; README's builds one"),
            SCRIPT: r"nothing to do: drover@pve!ci holds what is needed",
        },
        "The first lease": {
            "drover status": r"primary +healthy",
            "drover lease --labels linux -- 'id -un && uname -r'": r"(?m)^debian\r?$",
            "drover agents --gone": r"linux",
        },
        "By hand": Untyped("it needs Rust; tests/wire/quickstart.rs types it"),
        "Make a template image": Untyped("it is for a node with Proxmox VE"),
    },
}


def commands(text):
    """The commands of a page: a list of (section, command), in the order of its fenced `sh` blocks."""
    found, section, fence = [], "", None
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```"):
            fence = None if fence is not None else bare[3:]
        elif fence is None and line.startswith("## "):
            section = line[3:].strip()
        elif fence == "sh" and bare and not bare.startswith("#"):
            found.append((section, re.sub(r"\s+# .*$", "", bare)))
    return found


def faults(name, text):
    """What of a page is not accounted for, and what is accounted for and not in the page."""
    plan, found = PAGES[name], commands(text)
    wrong = []
    for section, command in found:
        there = plan.get(section)
        if there is None or not isinstance(there, Untyped) and command not in there:
            wrong.append(f"{name}, `{section}`: nobody types `{command}`: say in tests/package/readme.py what it prints")
    for section, there in plan.items():
        known = [command for at, command in found if at == section]
        if not known:
            wrong.append(f"{name} has no commands in `{section}`, which tests/package/readme.py names")
        for command in [] if isinstance(there, Untyped) else there:
            if command not in known:
                wrong.append(f"{name}, `{section}` no longer has `{command}`, which tests/package/readme.py names")
    return wrong


def check(folder):
    """Ends with what is not accounted for; shows first that a planted command is found."""
    wrong = []
    for name in PAGES:
        text = (folder / name).read_text()
        wrong += faults(name, text)
        for section, command in commands(text):
            if isinstance(PAGES[name].get(section), dict):
                planted = text.replace(command, f"{command} --planted")
                assert faults(name, planted), f"a changed `{command}` in {name} was not found"
        planted = f"{text}\n## Planted\n\n```sh\ndrover planted\n```\n"
        assert faults(name, planted), f"a new section in {name} was not found"
    options = STANDS_FOR["drover init"].removeprefix("drover init ")
    if options not in (folder / "simulator.md").read_text():
        wrong.append(f"simulator.md does not say that init needs `{options}`")
    if wrong:
        sys.exit("\n".join(wrong))


def typed(command, answers):
    """Types a command on a terminal and answers what it asks: all that was shown, and the exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", command])
    shown, read, left = "", 0, list(answers)
    limit = time.monotonic() + COMMAND_LIMIT
    while True:
        if time.monotonic() > limit:
            os.kill(pid, signal.SIGKILL)
            asked = f"it never asked `{left[0][0]}`" if left else "it did not end"
            print(last_frames(plain(shown)))
            fail(f"{asked} within {COMMAND_LIMIT} s: {command}")
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        shown += piece.decode("utf-8", "replace")
        if left and (at := shown.find(left[0][0], read)) >= 0:
            read = at + len(left[0][0])
            os.write(terminal, (left.pop(0)[1] + "\n").encode())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shown = plain(shown)
    print(last_frames(shown), flush=True)
    if left:
        fail(f"it never asked `{left[0][0]}`: {command}")
    return shown, status


def plain(shown):
    """Terminal output without colours: `\\n` ends a line, `\\r` writes over one."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r\n", "\n")


def last_frames(shown):
    """What stays to be read of lines that were written over."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in shown.split("\n"))


def fail(why):
    """Ends the walk; the reason comes last, where the end of a log shows it."""
    subprocess.run(["journalctl", "-u", "drover.service", "-n", "30", "--no-pager"])
    print(f"FAULT: {why}", flush=True)
    sys.exit(1)


class Cluster:
    """The simulated cluster, of a copy of the program: another machine than the new one."""

    def __init__(self, package, folder):
        subprocess.run(["dpkg-deb", "-x", package, "/opt/cluster"], check=True)
        shutil.copy(folder / "bwrap", "/usr/local/bin/bwrap")
        pathlib.Path("/opt/cluster.yaml").write_text(CLUSTER)
        line = "exec /opt/cluster/usr/bin/drover sim --guests process --cluster /opt/cluster.yaml >/opt/facts"
        subprocess.run(["systemd-run", "-q", "--unit", "cluster", "sh", "-c", line], check=True)
        facts = pathlib.Path("/opt/facts")
        limit = time.monotonic() + COMMAND_LIMIT
        while not (facts.exists() and facts.read_text().endswith("\n")):
            if time.monotonic() > limit:
                fail("the simulated cluster does not start")
            time.sleep(0.2)
        self.facts = json.loads(facts.read_text())

    def end(self):
        subprocess.run(["systemctl", "stop", "cluster"], check=True)
        os.remove("/opt/facts")


def forget_everything():
    """Makes the machine new again."""
    subprocess.run(["dpkg", "-P", "drover"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for left in ["/etc/drover", "/var/lib/drover", "/opt/cluster"]:
        shutil.rmtree(left, ignore_errors=True)


def spelled(command, facts):
    """A command of a page as it is typed here."""
    for said, stands in STANDS_FOR.items():
        command = command.replace(said, stands)
    if "{agent}" in command:
        agents = json.loads(subprocess.check_output(["drover", "--json", "agents"]))["agents"]
        leased = [agent["id"] for agent in agents if agent["state"] == "Leased"]
        if not leased:
            fail(f"no agent is leased: {agents}")
        facts = {**facts, "agent": leased[0]}
    return command.format(**facts)


def walk(folder, name, source):
    """Types one page from its first command to its last. `source` is what init is answered."""
    home = pathlib.Path("/root")
    os.chdir(home)
    package = next(folder.glob("drover_*.deb"))
    shutil.copy(package, home)
    cluster = Cluster(package, folder)
    (home / "admin").write_text(cluster.facts["adminPassword"])
    for section, command in commands((folder / name).read_text()):
        there = PAGES[name][section]
        if isinstance(there, Untyped):
            continue
        prints = there[command]
        if isinstance(prints, Untyped):
            print(f"step: {name}: not typed: {command} ({prints.reason})", flush=True)
            continue
        answers = ANSWERS[source] if command == "drover init" else []
        answers = [(ask, answer.format(**cluster.facts)) for ask, answer in answers]
        if command in BEFORE:
            typed(BEFORE[command], [])
        print(f"step: {name}: {command}", flush=True)
        shown, status = typed(spelled(command, cluster.facts), answers)
        # What was written over counts too: the live line of a build is all that says `Done`.
        if status != 0 or not re.search(prints, shown.replace("\r", "\n")):
            fail(f"`{command}` ended with {status}, and must print `{prints}`")
        if cluster.facts["adminPassword"] in shown:
            fail(f"`{command}` shows the administrator's password")
    cluster.end()
    forget_everything()


def main():
    what, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    check(folder)
    if what == "type":
        walk(folder, "README.md", "make")
        walk(folder, "quickstart.md", "template")
        print("ALL WELL", flush=True)


if __name__ == "__main__":
    main()
