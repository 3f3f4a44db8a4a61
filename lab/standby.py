#!/usr/bin/env python3
"""Runs examples/standby as root with the real Litestream and sshd, and stops, kills and replaces what it copies.

    lab/standby.py TENANTDESK [--rounds 2] [--tenants 10] [TEST…]

It needs Litestream 0.5.17 or later, in the path or in LITESTREAM, and openssh-server, openssh-client, strace and systemd-analyze."""

import argparse
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/standby"
LITESTREAM = os.environ.get("LITESTREAM", "litestream")
PROCESSES, DIRECTORIES, TESTS = [], [], []


def until(what, condition, seconds=120):
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return result


def directory(parent=None):
    DIRECTORIES.append(Path(tempfile.mkdtemp(prefix="standby-", dir=parent)))
    return DIRECTORIES[-1]


def start(command, **options):
    PROCESSES.append(subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, **options))
    return PROCESSES[-1]


def kill(process):
    process.kill()
    process.wait()


def run(command, status=0, **options):
    """Runs a command to its end, and returns its standard output and standard error. `status` None takes any."""
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    assert status is None or done.returncode == status, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done if status is None else (done.stdout, done.stderr)


def adapted(name, replaced):
    text = (EXAMPLE / name).read_text()
    for old, new in replaced.items():
        assert old in text, f"{name} has no {old!r}"
        text = text.replace(old, str(new))
    return text


class Machine:
    """A machine with a data directory, which serves after `serve`."""

    def __init__(self):
        self.home = directory()
        self.data = self.home / "data"
        self.local = threading.local()
        self.log = self.home / "log"

    def cli(self, *arguments, status=0):
        return run([BINARY, "--data-dir", self.data, *arguments], status)

    def tenant(self, name):
        """Makes a tenant, and returns its id and a key."""
        return json.loads(self.cli("--json", "tenant", "create", name)[0])["id"], self.key(name)

    def key(self, name):
        return self.cli("key", "create", name, "--name", "test", "--scope", "all")[0].strip()

    def serve(self, command=None):
        """Starts the server, or the command of the second machine, and waits for its address."""
        command = command or [BINARY, "--data-dir", self.data]
        begun = time.monotonic()
        serving = [*command, "serve", "--listen", "127.0.0.1:0", "--rate-limit", "1000000"]
        self.process = start(serving, stdout=subprocess.PIPE, stderr=self.log.open("w"), text=True, env=ENVIRONMENT)
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://"), line + self.log.read_text()
        self.address, self.took = line.split("//")[1].strip(), time.monotonic() - begun
        return self

    def call(self, method, path, key=None, body=None):
        """A request on this thread's connection. Returns the status and the body."""
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPConnection(self.address, timeout=30)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.local.connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self.local.connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def customer(self, key, name, status=201):
        found, body = self.call("POST", "/customers.php", key, {"name": name, "notes": name})
        assert found == status, body

    def total(self, key, query=""):
        status, body = self.call("GET", f"/customers.php?limit=1&total=true{query}", key)
        assert status == 200, body
        return body["total"]

    def export(self, name):
        done = self.cli("export", name, "customers", "--format", "jsonl", status=None)
        return done.stdout if done.returncode == 0 else None


class Copy:
    """The place of a copy: a directory, or a second machine over SFTP with an sshd of its own."""

    def __init__(self, over_sftp=False):
        # sshd changes its root directory. So nobody but root may write to a directory above.
        self.home, self.port = directory("/run"), None
        self.home.chmod(0o755)
        self.directory = self.home / "root/data"
        self.directory.mkdir(parents=True)
        if over_sftp:
            self.start_sshd()

    def start_sshd(self):
        # The host keys that Debian's sshd has.
        for kind, name in (("ecdsa", "host"), ("ed25519", "host-ed25519"), ("rsa", "host-rsa"), ("ed25519", "client")):
            run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", self.home / name])
        os.makedirs("/run/sshd", exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        example = adapted("sshd.conf", {
            "Match User tenantdesk-copy": "Match User root", "/srv/tenantdesk-copy": self.home / "root",
            "/etc/ssh/tenantdesk-copy/authorized_keys": self.home / "client.pub"})
        (self.home / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.home}/host\nHostKey {self.home}/host-ed25519\nHostKey {self.home}/host-rsa\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"Subsystem sftp internal-sftp\n{example}")
        start(["/usr/sbin/sshd", "-D", "-f", self.home / "sshd_config", "-E", self.home / "sshd.log"])
        until("sshd listens", lambda: socket.socket().connect_ex(("127.0.0.1", self.port)) == 0)

    def client(self, program, *arguments):
        """Runs ssh or sftp with the first machine's key."""
        (self.home / "known").write_text(f"[127.0.0.1]:{self.port} {(self.home / 'host.pub').read_text()}")
        options = ["BatchMode=yes", "IdentitiesOnly=yes", f"UserKnownHostsFile={self.home}/known", f"Port={self.port}"]
        settings = [part for option in options for part in ("-o", option)]
        return run([program, "-F", "none", *settings, "-i", self.home / "client", *arguments], None)

    def begin(self, machine, before=()):
        """Starts Litestream on the data of a machine with the example's configuration."""
        if self.port:
            host_key = " ".join((self.home / "host.pub").read_text().split()[:2])
            text = adapted("to-second-machine.yml", {
                "/var/lib/tenantdesk": machine.data, "second.example:22": f"127.0.0.1:{self.port}", "user: tenantdesk-copy": "user: root",
                "/etc/tenantdesk-copy.key": self.home / "client", "ecdsa-sha2-nistp256 THE-SECOND-MACHINES-KEY": host_key})
        else:
            text = adapted("to-directory.yml", {"/var/lib/tenantdesk": machine.data, "/mnt/elsewhere/tenantdesk": self.directory})
        (self.home / "litestream.yml").write_text(text)
        log = (self.home / "litestream.log").open("a")
        return start([*before, LITESTREAM, "replicate", "-config", self.home / "litestream.yml"], stdout=log, stderr=log)

    def await_begun(self, *tenants):
        for file in ["registry.db", *(f"tenants/{tenant}.db" for tenant in tenants)]:
            until(f"{file} is copied", lambda place=self.directory / file / "ltx/0": place.is_dir() and any(place.iterdir()))

    def await_same(self, machine, *names):
        """Waits until the copy has what the machine has of these tenants. Returns a machine with the copy."""

        def fetched():
            second = Machine()
            done = run(take_over(self.directory, second), None, env=ENVIRONMENT)
            same = done.returncode == 0 and all(second.export(name) == machine.export(name) for name in names)
            return same and second
        second = until("the copy has caught up", fetched)
        second.cli("check")
        return second


def take_over(copy, machine, before=()):
    return [*before, EXAMPLE / "take-over", copy, machine.data]


class Load:
    """Clients that create customers and remember (tenant, name, sent, acknowledged). They end when the machine dies."""

    def __init__(self, machine, keys, clients):
        self.changes, self.stop = [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(machine, keys, client)) for client in range(clients)]
        for thread in self.threads:
            thread.start()

    def work(self, machine, keys, number):
        while not self.stop.is_set():
            number, name = number + 1, f"entry {uuid.uuid4()}"
            sent = time.monotonic()
            try:
                status, body = machine.call("POST", "/customers.php", keys[number % len(keys)], {"name": name, "notes": name})
            except (OSError, http.client.HTTPException):
                return
            # While an import holds the file for more than 5 s, other writers get 503.
            if status == 201:
                self.changes.append((number % len(keys), name, sent, time.monotonic()))
            elif status != 503:
                self.changes.append(body)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert all(isinstance(change, tuple) for change in self.changes), "a change was refused"
        return self.changes


def test(function):
    TESTS.append(function)
    return function


@test
def a_killed_machine_has_a_prefix_of_each_tenants_changes_in_the_copy():
    first = Machine()
    made = [first.tenant(f"shop-{number}") for number in range(OPTIONS.tenants)]
    first.serve()
    for number in range(OPTIONS.rounds):
        copy = Copy(over_sftp=number % 2 == 1)
        earlier = [customers(first, key) for _, key in made]
        copying, load = copy.begin(first), Load(first, [key for _, key in made], 16)
        copy.await_begun(*(tenant for tenant, _ in made))
        # A random moment is the point of this test.
        time.sleep(1 + 2 * random.random())
        killed = time.monotonic()
        kill(first.process)
        kill(copying)
        changes, second = load.end(), Machine()
        second.serve(take_over(copy.directory, second))
        second.cli("check")
        ages = [0]
        for index, (_, key) in enumerate(made):
            records = customers(second, key)
            assert earlier[index].keys() <= records.keys(), "records from before this round are lost"
            assert all(record["name"] == record["notes"] for record in records.values()), "a change is there in part"
            assert len(records) == max(records, default=0), "ids have a gap"
            assert second.total(key, "&q=entry") == len(records), "the search goes with the records"
            names = {record["name"] for record in records.values()}
            lost = [change[3] for change in changes if change[0] == index and change[1] not in names]
            kept = [change[2] for change in changes if change[0] == index and change[1] in names]
            assert not lost or not kept or max(kept) < min(lost), "a change is lost, but a later one is there"
            ages += [killed - acknowledged for acknowledged in lost]
        print(f"    {len(changes)} changes; the oldest lost one was {max(ages):.1f} s old; served after {second.took:.1f} s")
        assert max(ages) < 30
        first = second


def customers(machine, key):
    """The customers of a tenant by id."""
    found, cursor = {}, ""
    while cursor is not None:
        _, page = machine.call("GET", f"/customers.php?limit=200&cursor={cursor}", key)
        found.update({record["id"]: record for record in page["data"]})
        cursor = page["next_cursor"]
    return found


@test
def the_account_can_transfer_the_copy_and_do_nothing_else():
    copy, here = Copy(over_sftp=True), directory()
    (here / "sent").write_text("change")

    def sftp(commands):
        (here / "batch").write_text(commands + "\n")
        return copy.client("sftp", "-b", here / "batch", "root@127.0.0.1").returncode == 0
    assert sftp(f"put {here}/sent /data/change")
    received = copy.directory / "change"
    assert received.read_text() == "change" and received.stat().st_mode & 0o777 == 0o600
    for commands in (f"get /etc/passwd {here}/got", f"get {received} {here}/got", f"put {here}/sent {received}.2"):
        assert not sftp(commands), commands
    assert not (here / "got").exists()
    for arguments in (["root@127.0.0.1", "echo", "it ran"], ["-W", f"127.0.0.1:{copy.port}", "root@127.0.0.1"]):
        done = copy.client("ssh", *arguments)
        assert done.returncode != 0 and done.stdout.strip() in ("", "This service allows sftp connections only."), done


@test
def the_units_let_every_system_call_through():
    copy, first = Copy(over_sftp=True), Machine()
    (tenant, key), calls = first.tenant("acme"), first.home / "calls"
    first.serve().customer(key, "First")
    copying = copy.begin(first, traced(calls))
    copy.await_begun(tenant)
    copy.await_begun(first.tenant("late")[0])
    kill(copying)
    assert_allowed("tenantdesk-copy.service", calls)
    second = Machine()
    run(take_over(copy.directory, second, traced(second.home / "calls")), env=ENVIRONMENT)
    assert_allowed("tenantdesk-take-over.service", second.home / "calls")


def traced(calls):
    """strace writes all system calls to a file, and ends with the command."""
    return ["strace", "-D", "-f", "-qq", "-o", calls]


def calls_of(name):
    """The system calls of one of systemd's sets, and of the sets in it."""
    if not name.startswith("@"):
        return {name}
    lines = run(["systemd-analyze", "--no-pager", "syscall-filter", name])[0].splitlines()[1:]
    names = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return set().union(*map(calls_of, names))


def assert_allowed(unit, calls):
    allowed = set()
    for taken, names in re.findall(r"^SystemCallFilter=(~?)(.*)$", (EXAMPLE / unit).read_text(), re.M):
        listed = set().union(*map(calls_of, names.split()))
        allowed = allowed - listed if taken else allowed | listed
    made = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", calls.read_text(), re.M))
    # SQLite calls fchown only if root runs it, as here.
    assert len(made) > 20 and made - {"fchown"} <= allowed, (unit, made - allowed)


@test
def a_file_without_a_row_and_a_row_without_a_file_affect_no_other_tenant():
    copy, first = Copy(), Machine()
    (_, kept), (lost_id, lost) = first.tenant("kept"), first.tenant("lost")
    first.serve().customer(kept, "Kept")
    copying = copy.begin(first)
    copy.await_same(first, "kept", "lost")
    # The copied registry stays at this moment. So a later key is missing, and a later tenant has a file but no row.
    registry = copy.directory / "registry.db"
    shutil.copytree(registry, copy.home / "registry")
    late = first.key("kept")
    new_id, new = first.tenant("new")
    first.customer(new, "Nobody's")
    copy.await_same(first, "new")
    kill(copying)
    shutil.rmtree(registry)
    shutil.copytree(copy.home / "registry", registry)
    shutil.rmtree(copy.directory / f"tenants/{lost_id}.db")
    second = Machine()
    second.serve(take_over(copy.directory, second))
    assert second.total(kept) == 1
    for key, code in ((late, "invalid_api_key"), (lost, "tenant_unavailable")):
        assert second.call("GET", "/customers.php", key)[1]["error"]["code"] == code
    assert second.call("GET", "/readyz")[0] == 200
    checked = {entry["database"]: str(entry["problems"]) for entry in json.loads(second.cli("--json", "check", status=1)[0])}
    assert "does not exist" in checked[f"tenants/{lost_id}.db"] and checked["tenants/1.db"] == "[]", checked
    assert "no tenant in the registry has this file" in checked[f"tenants/{new_id}.db"], checked
    # The next tenant does not get the id of the file.
    assert second.tenant("next")[0] > new_id


@test
def existing_data_is_not_overwritten_and_an_interrupted_command_can_be_repeated():
    copy, first = Copy(), Machine()
    first.tenant("acme")
    first.serve()
    copy.begin(first)
    copy.await_same(first, "acme")
    assert "already contains data" in run(take_over(copy.directory, first), 1, env=ENVIRONMENT)[1]
    second = Machine()
    (second.data / ".take-over/tenants/half.db").mkdir(parents=True)
    run(take_over(copy.directory, second), env=ENVIRONMENT)
    assert not (second.data / ".take-over").exists()
    assert run(["find", second.data, "-mindepth", "1", "-perm", "/077"])[0] == "", "all files are private"
    # The copy can be named by its address, too.
    third = Machine()
    run(take_over(f"file://{copy.directory}", third), env=ENVIRONMENT)
    assert len(json.loads(third.cli("--json", "check")[0])) == 2


@test
def commands_go_on_beside_the_copy():
    copy, first = Copy(), Machine()
    made = [first.tenant(f"shop-{number}") for number in range(4)]
    names = [f"shop-{number}" for number in range(4)]
    first.serve().customer(made[0][1], "From before")
    old, every, rows = first.home / "old", first.home / "all", first.home / "rows.csv"
    first.cli("backup", old, "shop-0")
    copying = copy.begin(first)
    copy.await_begun(*(tenant for tenant, _ in made))
    load = Load(first, [key for _, key in made[1:]], 6)
    # One transaction that is larger than the log usually becomes.
    rows.write_text("name,notes\n" + "".join(f"Row {number},{'x' * 200}\n" for number in range(5000)))
    for _ in range(2):
        first.cli("import", "shop-0", "customers", rows)
        first.cli("backup", every)
        first.cli("import", "shop-1", "customers", rows)
        first.cli("check")
    assert load.end()
    copy.await_same(first, *names)
    log = (copy.home / "litestream.log").read_text()
    assert "level=ERROR" not in log and "level=WARN" not in log, log
    # After a restore, Litestream is restarted.
    for backup, count in ((old, 1), (every, 1 + 2 * 5000)):
        first.cli("restore", backup, "shop-0", "--force")
        assert first.total(made[0][1]) == count
        kill(copying)
        copying = copy.begin(first)
        first.customer(made[0][1], "After the restore")
        copy.await_same(first, *names)
    # A deleted tenant's file is removed, although Litestream holds it open.
    first.cli("tenant", "delete", "shop-3", "--yes")
    until("nothing is left", lambda: not list((first.data / "tenants").glob(f"*{made[3][0]}.db*")))
    # Also if the file was missing.
    for file in (first.data / "tenants").glob(f"{made[0][0]}.db*"):
        file.unlink()
    first.cli("restore", old, "shop-0", "--force")
    kill(copying)
    copy.begin(first)
    first.customer(made[0][1], "Second")
    copy.await_same(first, "shop-0")


@test
def the_copy_has_every_page_whenever_the_log_starts_again():
    copy, first = Copy(), Machine()
    tenant, key = first.tenant("acme")
    copying = copy.begin(first)
    first.serve()
    load = Load(first, [key], 8)
    until("the log has started again some times", lambda: first.total(key) >= 4000, 300)
    load.end()
    copy.await_same(first, "acme")
    kill(copying)
    # Without Litestream, the log stays short, and its beginning is written again. Each batch writes some 3 MB.
    log = first.data / f"tenants/{tenant}.db-wal"
    operation = {"method": "POST", "path": "/customers.php", "body": {"name": "Without", "notes": "x" * 4000}}
    for _ in range(40):
        status, body = first.call("POST", "/batch.php", key, {"operations": [operation] * 100})
        assert status == 200 and log.stat().st_size < 64 << 20, (body, log.stat().st_size)
    copy.begin(first)
    first.customer(key, "Later")
    copy.await_same(first, "acme")


def main():
    failed = []
    for function in TESTS:
        if OPTIONS.tests and function.__name__ not in OPTIONS.tests:
            continue
        print(function.__name__, flush=True)
        try:
            function()
        except Exception:  # The next test does not depend on this one.
            failed.append(function.__name__)
            traceback.print_exc()
        finally:
            for process in PROCESSES:
                kill(process)
            PROCESSES.clear()
            for place in DIRECTORIES:
                shutil.rmtree(place, ignore_errors=True)
            DIRECTORIES.clear()
    sys.exit(f"failed: {', '.join(failed)}" if failed else None)


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("binary", type=Path)
PARSER.add_argument("tests", nargs="*")
PARSER.add_argument("--rounds", type=int, default=2)
PARSER.add_argument("--tenants", type=int, default=10)
OPTIONS = PARSER.parse_args()
BINARY = OPTIONS.binary.resolve()
ENVIRONMENT = {**os.environ, "TENANTDESK": str(BINARY), "LITESTREAM": LITESTREAM}
main()
