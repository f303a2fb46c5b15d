"""Buildbot workers on machines of drover: one lease, and so one machine, for each build.

In master.cfg: c["workers"] = [DroverLatentWorker("ci-1", "http://drover.example.com:8080",
"/etc/buildbot/drover-token", {"labels": ["linux"]}, ("buildbot.example.com", 9989))]
What the worker connects with goes to the machine as user data; buildbot-worker.sh beside this is
what takes it up there. A machine whose master is gone ends within `ttl` seconds."""

import json
import urllib.request

from buildbot.worker import AbstractLatentWorker
from twisted.internet import defer, task, threads
from twisted.python import log


class DroverLatentWorker(AbstractLatentWorker):
    lease = renewals = None

    def checkConfig(self, name, api, token_file, wants, master, ttl=300, **kwargs):
        super().checkConfig(name, None, **kwargs)

    def reconfigService(self, name, api, token_file, wants, master, ttl=300, **kwargs):
        self.api, self.token_file, self.wants, self.ttl = api, token_file, wants, ttl
        self.address = master
        kwargs.setdefault("build_wait_timeout", 0)
        return super().reconfigService(name, self.getRandomPass(), **kwargs)

    def call(self, method, path, body=None):
        def work():
            with open(self.token_file, encoding="utf-8") as file:
                headers = {"Authorization": f"Bearer {file.read().strip()}"}
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(self.api + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")

        return threads.deferToThread(work)

    @defer.inlineCallbacks
    def start_instance(self, build):
        host, port = self.address
        said = {"BUILDMASTER": f"{host}:{port}", "WORKERNAME": self.name, "WORKERPASS": self.password}
        data = "".join(f"{name}={value}\n" for name, value in said.items())
        ask = {**self.wants, "owner": self.name, "ttlSeconds": self.ttl, "userData": data}
        self.lease = (yield self.call("POST", "/v1/leases", ask))["id"]
        self.renewals = task.LoopingCall(self.renew, self.lease)
        self.renewals.start(self.ttl / 4, now=False).addErrback(log.err)
        return True

    @defer.inlineCallbacks
    def renew(self, lease):
        try:
            seen = yield self.call("GET", f"/v1/leases/{lease}")
            if seen["state"] in ("granted", "ready"):
                yield self.call("POST", f"/v1/leases/{lease}/renew", {"ttlSeconds": self.ttl})
        except OSError as error:  # drover may be starting anew: the next try is soon
            log.msg(f"lease {lease} could not be renewed: {error}")

    @defer.inlineCallbacks
    def check_instance(self):
        seen = yield self.call("GET", f"/v1/leases/{self.lease}")
        return (seen["state"] != "ended", seen["detail"])

    @defer.inlineCallbacks
    def stop_instance(self, fast=False):
        lease, self.lease = self.lease, None
        if self.renewals:
            self.renewals.stop()
            self.renewals = None
        try:
            if lease:
                yield self.call("DELETE", f"/v1/leases/{lease}")
        except OSError as error:
            log.msg(f"lease {lease} ends by its time: {error}")
        return True
