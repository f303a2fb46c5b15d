#!/usr/bin/env python3
"""Stands for `java` in a guest where Jenkins' agent is started, and has Hudson's own agent serve the node.

Hudson is alone in a network of its own, which no guest reaches but by HTTP: so the agent runs there, as a
build on Hudson's own node, with the name and the secret that this one was given. The options that drover
gives are those of Jenkins' remoting; `hudson.remoting.jnlp.Main` of remoting 3.0.3 (`slave.jar` of Hudson
3.3.2) takes the same secret and name as words."""

import os
import signal
import sys
import urllib.request
from xml.sax.saxutils import escape


def after(option):
    return sys.argv[sys.argv.index(option) + 1]


def post(path, body=b""):
    headers = {"Content-Type": "application/xml"}
    urllib.request.urlopen(urllib.request.Request(url + path, data=body, headers=headers))


assert open(after("-jar"), "rb").read(2) == b"PK", "no jar"
assert "-noReconnect" in sys.argv and "-webSocket" not in sys.argv, sys.argv
os.environ["no_proxy"] = "*"
url, name = after("-url"), after("-name")
with open(after("-secret").removeprefix("@")) as file:
    secret = file.read().strip()
command = f"""curl -sSf --noproxy '*' -o agent.jar {url}jnlpJars/agent.jar
exec java -Xmx64m -Djava.security.manager=allow -cp agent.jar hudson.remoting.jnlp.Main \
-headless -noreconnect -url {url} {secret} {name}"""
job = f"""<project><assignedNode>master</assignedNode><canRoam>false</canRoam><builders><hudson.tasks.Shell>
<command>{escape(command)}</command></hudson.tasks.Shell></builders></project>"""
post(f"createItem?name=agent-of-{name}", job.encode())
post(f"job/agent-of-{name}/build?delay=0sec")
signal.pause()
