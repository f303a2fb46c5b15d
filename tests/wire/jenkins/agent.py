#!/usr/bin/env python3
"""Stands for `java` where Jenkins' agent is started: a small agent that is told builds over one
connection, a JSON object a line. Inbound it connects as `agent.jar -webSocket` does, with its name
and secret in headers; started by Jenkins' SSH launcher it speaks over its standard streams.

How it is started and connects follows remoting 3355.v388858a_47b_33, in `src/main/java`:
`hudson/remoting/Launcher.java` (the options), `hudson/remoting/Engine.java` (`wsagents/` and what it is
asked with), `hudson/remoting/Capability.java` and `org/jenkinsci/remoting/engine/JnlpConnectionState.java`
(the names of the headers). What is spoken then is a form of the tests' own: remoting sends Java's objects."""

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.parse


def options(words):
    """The options of `java -jar …`, each by its name."""
    assert "-jar" in words, words
    jar = words[words.index("-jar") + 1]
    rest, found = words[words.index("-jar") + 2 :], {}
    while rest:
        name = rest.pop(0)
        alone = not rest or rest[0].startswith("-")
        found[name] = "" if alone else rest.pop(0)
    return jar, found


def connect(url, name, secret):
    url = urllib.parse.urlsplit(url)
    link = socket.create_connection((url.hostname, url.port))
    head = [
        f"GET {url.path}wsagents/ HTTP/1.1",
        f"Host: {url.netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Node-Name: {name}",
        f"Secret-Key: {secret}",
        "X-Remoting-Capability: drover-test",
    ]
    link.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
    stream = link.makefile("rwb")
    status = stream.readline().decode()
    if " 101 " not in status:
        sys.exit(f"refused: {status}")
    while stream.readline().strip():
        pass
    return stream, stream


jar, given = options(sys.argv[1:])
if "-url" in given:
    assert open(jar, "rb").read(2) == b"PK", "no jar"
    assert "-noReconnect" in given and "-webSocket" in given, given
    path = given["-secret"]
    assert path.startswith("@"), "a secret among the words of a command"
    assert os.stat(path[1:]).st_mode & 0o077 == 0, "others can read the secret"
    incoming, outgoing = connect(given["-url"], given["-name"], open(path[1:]).read().strip())
else:
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
folder, lock, going = given["-workDir"], threading.Lock(), {}


def say(word):
    with lock:
        outgoing.write(json.dumps(word).encode() + b"\n")
        outgoing.flush()


def build(task):
    if task["run"] == "wait":
        going[task["build"]].wait()
        say({"build": task["build"], "exit": 0, "said": ""})
        return
    ran = subprocess.run(["sh", "-c", task["run"]], cwd=folder, capture_output=True, text=True)
    say({"build": task["build"], "exit": ran.returncode, "said": ran.stdout + ran.stderr})


say({"hello": [word for word in sys.argv[1:] if not word.startswith("@")]})
for line in incoming:
    word = json.loads(line)
    if "go" in word:
        going[word["go"]].set()
        continue
    going[word["build"]] = threading.Event()
    threading.Thread(target=build, args=(word,), daemon=True).start()
