#!/usr/bin/env python3
"""Soak: mixed load from 50 connections over 200 tenants with everything at once that can disturb it.

    cargo build --release && lab/soak.py --minutes 60

Meanwhile keys are revoked, tenants suspended and files locked; files are imported, and some imports killed; every minute a backup is
made, restored into an empty directory and examined, and tenants that nobody else uses are restored from it; the disk refuses writes for
moments; the server is killed and started again. `--undisturbed` leaves out the last two, for the growth of memory.

A client repeats a change with its idempotency key until the answer is definite. Needs nothing but Python 3 on Linux. It fails (exit
code 1, the reasons at the end) if

- a response has a status that no disturbance of its tenant or key explains;
- the response to a read differs from what was acknowledged before;
- memory or descriptors have grown since the first sixth of the time, with `--undisturbed`;
- a record that was acknowledged is missing or changed at the end, or one is there that was deleted or never sent;
- an import has stored some of its rows, a backup cannot be restored, or a restored tenant differs from its backup;
- the server does not stop cleanly, or `tenantdesk check` finds a fault.
"""

import argparse
import http.client
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter

WORDS = "alder birch cedar dogwood elm fir gorse hazel ivy juniper larch maple oak pine rowan spruce".split()


class Tenant:
    """A tenant, its keys and its current disturbances. Times are monotonic seconds."""

    def __init__(self, name, number):
        self.name, self.number = name, number
        self.permanent = None
        # The key that is revoked and replaced: (key, its id).
        self.rotating = None
        self.revoked = set()
        # How many suspend it at the moment, and until when it was suspended.
        self.suspensions = 0
        self.suspended_until = 0.0
        self.locked_until = 0.0

    def may_be_suspended(self, since):
        return self.suspensions > 0 or self.suspended_until >= since - 0.5

    def may_be_locked(self, since):
        # A write waits up to 5 s for the lock, and other writes are queued behind it.
        return self.locked_until >= since - 12.0


class Connection:
    """A connection that is made anew when the server was started again."""

    def __init__(self, soak):
        self.soak, self.connection = soak, None

    def exchange(self, method, path, body, headers):
        """The status and the text of the response. Repeats the request while the server is away."""
        while True:
            begun, kept = time.monotonic(), self.connection is not None
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection(*self.soak.address, timeout=60)
                self.connection.request(method, path, body, headers)
                response = self.connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException):
                self.close()
                # A kept connection may have ended before the request.
                if not kept and not self.soak.was_away(begun):
                    raise
                time.sleep(0.1)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Soak:
    def __init__(self, options):
        self.options = options
        self.home = tempfile.mkdtemp(prefix="soak-", dir=options.directory)
        self.data = os.path.join(self.home, "data")
        self.tenants = []
        self.counts = Counter()
        self.faults = []
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.samples = []
        # The last moment at which the server was away or its disk refused writes. Infinite meanwhile.
        self.away_until = self.full_until = 0.0
        self.address = None
        self.imports = []

    def fault(self, text):
        with self.lock:
            self.counts["faults"] += 1
            if len(self.faults) < 50:
                self.faults.append(text)
                print("FAULT", text, flush=True)

    def cli(self, *arguments):
        command = [self.options.binary, "--data-dir", self.data, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def make_key(self, tenant, name):
        made = json.loads(self.cli("--json", "key", "create", tenant.name, "--name", name, "--scope", "all"))
        return made["key"], made["id"]

    def prepare(self):
        print(f"making {self.options.tenants} tenants in {self.data}", flush=True)
        for number in range(self.options.tenants):
            name = f"soak-{number}"
            made = json.loads(self.cli("--json", "tenant", "create", name))
            tenant = Tenant(name, made["id"])
            tenant.permanent = self.make_key(tenant, "permanent")[0]
            tenant.rotating = self.make_key(tenant, "rotating")
            self.tenants.append(tenant)
        # Tenants of the thread for backups alone.
        self.restored, self.tenants = self.tenants[:3], self.tenants[3:]

    def serve(self):
        """Starts the server, again on its former port."""
        listen = "{}:{}".format(*self.address) if self.address else "127.0.0.1:0"
        command = [self.options.binary, "--data-dir", self.data, "serve", "--listen", listen, "--rate-limit", "4000000000"]
        with open(os.path.join(self.home, "log"), "a") as log:
            self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.server.stdout:
            if line.startswith("listening on http://"):
                host, port = line.removeprefix("listening on http://").strip().rsplit(":", 1)
                self.address = host, int(port)
                return
        raise SystemExit("the server did not start")

    # The disturbances.

    def disturb(self):
        """Revokes keys, suspends tenants and locks files at random, as `tenantdesk` and other programs would."""
        rng = random.Random(self.options.seed)
        while not self.over.wait(rng.uniform(0.1, 0.8)):
            tenant = rng.choice(self.tenants)
            kind = rng.choice(["revoke", "suspend", "lock", "lock"])
            seconds = rng.choice([0.05, 0.5, 1.5, 3.0, 6.5])
            self.counts[f"disturbance: {kind}"] += 1
            if kind == "revoke":
                key, number = tenant.rotating
                tenant.revoked.add(key)
                self.cli("key", "revoke", tenant.name, str(number))
                tenant.rotating = self.make_key(tenant, "rotating")
            elif kind == "suspend":
                threading.Thread(target=self.suspend, args=(tenant, seconds)).start()
            else:
                threading.Thread(target=self.hold_write_lock, args=(tenant, seconds)).start()

    def disturb_server(self):
        """Kills the server, and has its disk refuse writes."""
        rng = random.Random(self.options.seed + 1)
        while not self.over.wait(rng.uniform(5, 15)):
            if rng.random() < 0.5:
                self.counts["disturbance: kill"] += 1
                self.away_until = float("inf")
                self.server.kill()
                self.server.wait()
                self.serve()
                self.away_until = time.monotonic()
            else:
                self.refuse_writes(rng.choice([0.05, 0.5, 2.0]))

    def refuse_writes(self, seconds):
        """A limit for the size of files makes writes beyond it fail, as a full disk does."""
        self.counts["disturbance: full disk"] += 1
        self.full_until = float("inf")
        _, hard = resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (8192, hard))
        time.sleep(seconds)
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        self.full_until = time.monotonic()

    def import_files(self):
        """Imports files; a fifth of the imports is killed."""
        rng = random.Random(self.options.seed + 2)
        while not self.over.wait(rng.uniform(1, 6)):
            tenant, tag = rng.choice(self.tenants), f"import {uuid.UUID(int=rng.getrandbits(128))}"
            rows = rng.choice([10, 500, 5000])
            path = os.path.join(self.home, "import.csv")
            with open(path, "w") as file:
                file.write("name,city\n" + "".join(f"{tag},{rng.choice(WORDS)}\n" for _ in range(rows)))
            command = [self.options.binary, "--data-dir", self.data, "import", tenant.name, "customers", path]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                code = process.wait(rng.uniform(0.0, 0.3) if rng.random() < 0.2 else None)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            # One that failed has stored nothing, and one that was killed perhaps all.
            possible = {0: {rows}, -signal.SIGKILL: {0, rows}}.get(code, {0})
            self.counts[f"import ended with {code}"] += 1
            self.imports.append((tenant, tag, possible))

    def back_up(self):
        """Makes a backup every minute, restores it elsewhere, and restores tenants of its own from it."""
        rng = random.Random(self.options.seed + 3)
        directory, elsewhere = os.path.join(self.home, "backups"), os.path.join(self.home, "restored")
        os.makedirs(directory)
        connection = Connection(self)
        while not self.over.wait(self.options.backup_seconds):
            for tenant in self.restored:
                self.change_some(rng, connection, tenant)
            before = {tenant.name: self.names(connection, tenant) for tenant in self.restored}
            try:
                self.cli("backup", directory, "--keep", "3")
                shutil.rmtree(elsewhere, ignore_errors=True)
                for command in (["restore", directory], ["check"]):
                    subprocess.run([self.options.binary, "--data-dir", elsewhere, *command], check=True, capture_output=True, text=True)
                for tenant in self.restored:
                    self.change_some(rng, connection, tenant)
                    self.cli("restore", directory, tenant.name, "--force")
                    if self.names(connection, tenant) != before[tenant.name]:
                        self.fault(f"{tenant.name} differs from the backup that was restored")
                self.counts["backups restored"] += 1
            except subprocess.CalledProcessError as error:
                self.fault(f"{error.cmd[3:]} ended with {error.returncode}: {error.stderr[-300:]}")
        connection.close()

    def change_some(self, rng, connection, tenant):
        for _ in range(20):
            self.change(rng, connection, tenant, "POST", "/customers.php", {"name": f"restored {rng.getrandbits(64)}"})

    def names(self, connection, tenant):
        """The names of all customers of a tenant by their ids."""
        found, cursor = {}, ""
        while cursor is not None:
            path = "/customers.php?limit=200" + (f"&cursor={cursor}" if cursor else "")
            status, page = self.ask(connection, tenant, tenant.permanent, "GET", path)
            if status == 200:
                found.update({record["id"]: record["name"] for record in page["data"]})
                cursor = page["next_cursor"]
        return found

    def suspend(self, tenant, seconds):
        tenant.suspensions += 1
        self.cli("tenant", "suspend", tenant.name)
        time.sleep(seconds)
        self.cli("tenant", "activate", tenant.name)
        tenant.suspended_until = time.monotonic()
        tenant.suspensions -= 1

    def hold_write_lock(self, tenant, seconds):
        path = os.path.join(self.data, "tenants", f"{tenant.number}.db")
        tenant.locked_until = float("inf")
        connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            self.counts["disturbance: lock not acquired"] += 1
        finally:
            connection.close()
            tenant.locked_until = time.monotonic()

    # The load.

    def client(self, number):
        """One connection. No other client changes its records, so it knows their content."""
        rng = random.Random(self.options.seed * 1000 + number)
        mine = []
        connection = Connection(self)
        try:
            while not self.over.is_set():
                tenant = rng.choice(self.tenants)
                key = tenant.permanent if rng.random() < 0.7 else tenant.rotating[0]
                self.send_request(rng, connection, tenant, key, mine)
        except Exception as error:  # noqa: BLE001: whatever ends a client is a finding
            self.fault(f"client {number} ended: {error!r}")
        finally:
            connection.close()
        with self.lock:
            self.records.extend(mine)

    def send_request(self, rng, connection, tenant, key, mine):
        of_tenant = [record for record in rng.sample(mine, min(len(mine), 20)) if record["state"] == "there"]
        choice = rng.random()
        if choice < 0.30 or not of_tenant:
            self.create(rng, connection, tenant, mine)
            return
        record = rng.choice(of_tenant)
        tenant = record["tenant"]
        key = tenant.permanent if rng.random() < 0.7 else tenant.rotating[0]
        path = f"/customers.php?id={record['id']}"
        if choice < 0.65:
            status, body = self.ask(connection, tenant, key, "GET", path)
            if status == 200 and body["name"] != record["name"]:
                self.fault(f"{tenant.name} {path}: read {body['name']!r}, acknowledged {record['name']!r}")
            elif status == 404:
                self.fault(f"{tenant.name} {path}: gone, but acknowledged")
        elif choice < 0.75:
            self.ask(connection, tenant, key, "GET", "/customers.php?sort=-name&status=active")
        elif choice < 0.80:
            self.ask(connection, tenant, key, "GET", f"/customers.php?q={rng.choice(WORDS)}&total=true")
        elif choice < 0.95:
            name = f"{rng.choice(WORDS)} {uuid.UUID(int=rng.getrandbits(128))}"
            status, _ = self.change(rng, connection, tenant, "PUT", path, {"name": name})
            if status == 200:
                record["name"] = name
        else:
            status, _ = self.change(rng, connection, tenant, "DELETE", path)
            if status == 204:
                record["state"] = "deleted"

    def create(self, rng, connection, tenant, mine):
        """Creates one customer, or a batch of them."""
        count = rng.choice([1] * 9 + [20])
        bodies = [{"name": f"{rng.choice(WORDS)} {uuid.UUID(int=rng.getrandbits(128))}", "city": rng.choice(WORDS),
                   "notes": "n" * rng.choice([0, 10, 2000])} for _ in range(count)]
        path, body = "/customers.php", bodies[0]
        if count > 1:
            operations = [{"method": "POST", "path": path, "body": body} for body in bodies]
            path, body = "/batch.php", {"operations": operations}
        status, document = self.change(rng, connection, tenant, "POST", path, body)
        if status in (200, 201):
            made = [document] if count == 1 else [result["body"] for result in document["results"]]
            mine.extend({"tenant": tenant, "id": customer["id"], "name": customer["name"], "state": "there"} for customer in made)

    def change(self, rng, connection, tenant, method, path, body=None):
        """Sends a change, with its key again until the answer is definite, and sometimes once more."""
        again = {"Idempotency-Key": str(uuid.UUID(int=rng.getrandbits(128)))}
        while True:
            status, first = self.ask(connection, tenant, tenant.permanent, method, path, body, again)
            if status < 300 or status == 404:
                break
            time.sleep(0.2)
        if rng.random() < 0.2:
            repeated, second = self.ask(connection, tenant, tenant.permanent, method, path, body, again)
            if repeated < 300 and (repeated, second) != (status, first):
                self.fault(f"{tenant.name} {method} {path}: {status} {first}, repeated {repeated} {second}")
        return status, first

    def ask(self, connection, tenant, key, method, path, body=None, headers=None):
        """One response. A request that was cut off by the end of the server is sent again: reads and changes with a key may be."""
        headers = {"Authorization": f"Bearer {key}", **(headers or {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        begun = time.monotonic()
        status, text = connection.exchange(method, path, json.dumps(body) if body is not None else None, headers)
        document = json.loads(text) if text else None
        self.counts[f"{method} {status}"] += 1
        if status >= 400 and not self.is_explained(tenant, key, status, document, begun):
            self.fault(f"{method} {path} of {tenant.name}: {status} {text[:300]!r}")
        return status, document

    def is_explained(self, tenant, key, status, document, begun):
        code = document["error"]["code"]
        return (
            (status == 404 and code == "not_found")
            or (status == 401 and code == "revoked_api_key" and key in tenant.revoked)
            or (status == 403 and code == "tenant_inactive" and tenant.may_be_suspended(begun))
            or (status == 503 and code == "tenant_unavailable" and tenant.may_be_locked(begun))
            # A file that failed is tried again within seconds.
            or (status in (503, 507) and self.full_until >= begun - 5.0)
        )

    # The measurements.

    def was_away(self, since):
        return self.away_until >= since - 1.0

    def sample(self):
        directory = f"/proc/{self.server.pid}"
        with open(f"{directory}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        memory = int(fields["VmRSS"].split()[0]) / 1000
        return memory, len(os.listdir(f"{directory}/fd")), int(fields["Threads"])

    def watch(self):
        begun = time.monotonic()
        until = begun + self.options.minutes * 60
        while time.monotonic() < until:
            asleep = time.monotonic()
            time.sleep(min(10.0, max(until - time.monotonic(), 0.1)))
            try:
                memory, descriptors, threads = self.sample()
            except (OSError, KeyError):
                if not self.was_away(asleep):
                    self.fault("the server has ended by itself")
                    return
                continue
            elapsed = time.monotonic() - begun
            self.samples.append((elapsed, memory, descriptors, threads))
            answered = sum(count for name, count in self.counts.items() if name[0].isupper())
            print(f"{elapsed:6.0f} s  {answered:9} answered  {memory:6.1f} MB  {descriptors:5} descriptors  "
                  f"{threads:3} threads  {len(self.faults)} faults", flush=True)

    def check_growth(self):
        settled = [sample for sample in self.samples if sample[0] >= self.options.minutes * 10]
        if len(settled) < 4:
            return
        half = len(settled) // 2
        for name, at, slack in [("memory", 1, 10), ("descriptors", 2, 60), ("threads", 3, 8)]:
            before = max(sample[at] for sample in settled[:half])
            after = max(sample[at] for sample in settled[half:])
            if after > before * 1.1 + slack:
                self.fault(f"{name} grew from {before:.0f} to {after:.0f}")

    def check_records(self):
        """Compares every acknowledged record with what the API returns."""
        connection = Connection(self)
        for tenant in self.tenants:
            found = self.names(connection, tenant)
            expected = {record["id"]: record["name"] for record in self.records
                        if record["tenant"] is tenant and record["state"] == "there"}
            for number, name in expected.items():
                if found.get(number) != name:
                    self.fault(f"{tenant.name} record {number}: acknowledged {name!r}, found {found.get(number)!r}")
            others = Counter(name for number, name in found.items() if number not in expected)
            for tag, possible in ((tag, possible) for owner, tag, possible in self.imports if owner is tenant):
                if others[tag] not in possible:
                    self.fault(f"{tenant.name}: {others[tag]} rows of {tag}, possible are {possible}")
                del others[tag]
            if others:
                self.fault(f"{tenant.name}: {others.total()} records that were never acknowledged")
        connection.close()

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        try:
            code = self.server.wait(15)
        except subprocess.TimeoutExpired:
            self.server.kill()
            code = "killed after 15 s"
        if code != 0:
            self.fault(f"the server ended with {code}")
        checked = subprocess.run([self.options.binary, "--data-dir", self.data, "check"], capture_output=True, text=True)
        if checked.returncode != 0:
            self.fault(f"check: {checked.stdout[-500:]} {checked.stderr[-500:]}")

    def run(self):
        self.records = []
        self.prepare()
        self.serve()
        clients = [threading.Thread(target=self.client, args=(number,)) for number in range(self.options.connections)]
        others = [threading.Thread(target=work) for work in (self.disturb, self.import_files, self.back_up)]
        if not self.options.undisturbed:
            others.append(threading.Thread(target=self.disturb_server))
        for thread in clients + others:
            thread.start()
        self.watch()
        self.over.set()
        for thread in clients + others:
            thread.join()
        # Wait until the last suspension or lock has ended.
        time.sleep(8)
        for tenant in self.tenants:
            self.cli("tenant", "activate", tenant.name)
        if self.options.undisturbed:
            self.check_growth()
        self.check_records()
        self.stop()
        for name, count in sorted(self.counts.items()):
            print(f"{count:10}  {name}")
        there = sum(record["state"] == "there" for record in self.records)
        print(f"{there} acknowledged records looked for, {len(self.faults)} faults; data and log in {self.home}")
        return 1 if self.faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--binary", default="target/release/tenantdesk")
    parser.add_argument("--directory", default="target/tmp", help="where the temporary data lies; on a real disk")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backup-seconds", type=float, default=60, help="the time between two backups")
    parser.add_argument("--undisturbed", action="store_true", help="neither kill the server nor refuse its writes")
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    options.binary = os.path.abspath(options.binary)
    return Soak(options).run()


if __name__ == "__main__":
    sys.exit(main())
