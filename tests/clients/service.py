"""The server under test: the binary on a port of its own, with a tenant and a key, ended when the block ends.

    with Server(binary) as server:
        server.url, server.key
"""

import json
import re
import signal
import subprocess
import tempfile
from pathlib import Path


class Server:
    def __init__(self, binary, *options):
        self.binary = str(Path(binary).resolve())
        self.options = options

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="tenantdesk-")
        self.data = str(Path(self.directory.name) / "data")
        json.loads(self.run("--json", "tenant", "create", "acme"))
        made = self.run("--json", "key", "create", "acme", "--name", "clients", "--scope", "all")
        self.key = json.loads(made)["key"]
        self.log = open(Path(self.directory.name) / "log", "w+")
        self.process = subprocess.Popen(
            [self.binary, "--data-dir", self.data, "serve", "--listen", "127.0.0.1:0", "--rate-limit", "10000000", *self.options],
            stdout=subprocess.PIPE, stderr=self.log, text=True,
        )
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            raise RuntimeError(f"the server did not start: {line!r}")
        self.url = found.group()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.log.close()
        self.directory.cleanup()
        if status != 0:
            raise RuntimeError(f"the server ended with {status}")

    def run(self, *arguments):
        return subprocess.run(
            [self.binary, "--data-dir", self.data, *arguments], check=True, capture_output=True, text=True
        ).stdout
