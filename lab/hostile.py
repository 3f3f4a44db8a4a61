#!/usr/bin/env python3
"""Attacks the service as one or more tenants, or lets its disk hang, and prints what an innocent tenant notices.

    lab/hostile.py BINARY… [--only hanging,lists]

`40 of 40, 3 ms, worst 9` are GETs of the innocent tenant. One is due every tenth of a second, and those count that are answered within 3 s,
or 8 s beside lists. `space` mounts a file as a disk, so it needs root. `hanging` compiles a library that holds syncs."""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import re
import resource
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from speed import LISTS, TARGET, Server

MIB = 2**20
# The longest texts that the contract allows: as JSON, a record has 90 KiB.
FAT = {"name": "Fat", "notes": "\1" * 5_000, "custom": {f"field_{number}": "\1" * 500 for number in range(20)}}


@contextlib.contextmanager
def beside(*calls):
    """Has threads make all calls at once meanwhile. They may fail."""
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
        time.sleep(0.5)
        yield running


def watch(quantity, *calls):
    """All values of the quantity while threads make the calls."""
    values = []
    with beside(*calls) as running:
        while not all(call.done() for call in running):
            values.append(quantity())
            time.sleep(0.002)
    return values


def gets(server, tenant, patience=3):
    def get():
        connection = http.client.HTTPConnection(server.address, timeout=patience)
        return server.send(tenant, "GET", "/customers.php?limit=1", connection=connection)

    with ThreadPoolExecutor(40) as pool:
        running = []
        for _ in range(40):
            running.append(pool.submit(get))
            time.sleep(0.1)
    times = [call.result() for call in running if not call.exception()]
    return f"{len(times)} of 40" + (f", {statistics.median(times):,.0f} ms, worst {max(times):,.0f}" if times else "")


def batch(method, path, body, count):
    return {"operations": [{"method": method, "path": path.format(id), "body": body} for id in range(1, count + 1)]}


def rename_form(server, tenant):
    """Signs the tenant's admin in, and returns a call that sends a form to rename the key."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    browser.addheaders = [("X-Forwarded-For", f"203.0.113.{tenant}"), ("Sec-Fetch-Site", "same-origin")]

    def panel(**form):
        data = urllib.parse.urlencode(form).encode() or None
        return browser.open(f"http://{server.address}/api_keys.php", data, 60).read().decode()

    page = panel(action="sign-in", tenant=f"tenant-{tenant}", password=server.passwords[tenant])
    return partial(panel, action="edit", key=re.search(r"\?edit=(\d+)", page)[1], name="new", limit="", expires="keep")


def hanging(binary):
    with tempfile.TemporaryDirectory(dir=TARGET) as directory:
        # While there is a file `hold`, no sync ends.
        library, hold = Path(directory) / "syncs.so", Path(directory) / "hold"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, TARGET.parent / "tests/support/syncs.c"], check=True)
        with Server(binary, 37, LD_PRELOAD=str(library), SYNCS_HOLD=str(hold)) as server:
            forms = [rename_form(server, tenant) for tenant in range(36)]
            # The restart closes all files.
            server.copy_first(1)
            server.send(36, "GET", "/customers.php")
            reads = [partial(server.send, tenant, "GET", "/customers.php") for tenant in range(36)]
            for name, calls in {"36 tenants whose files are closed read": reads, "an admin sends 3 forms": forms[:1] * 3,
                                "each of 36 admins sends a form": forms}.items():
                hold.touch()
                with beside(*calls):
                    try:
                        found = gets(server, 36)
                    finally:
                        hold.unlink()
                yield f"the disk hangs, and {name}", found


def wal(binary):
    with Server(binary, 1) as server:
        server.fill(20_000)
        changes = json.dumps(batch("PUT", "/customers.php?id={}", {"notes": "@N@ " + "n" * 4_900}, 100))
        sizes = watch(lambda: (server.directory / "data/tenants/1.db-wal").stat().st_size,
                      partial(server.load, 2, 30, [0], "POST", "/batch.php", body=changes), partial(server.load, 4, 30, [0], "GET", *LISTS))
        yield "a tenant writes and lists for 30 s: the longest write-ahead log", f"{max(sizes) / MIB:,.0f} MiB"


def space(binary):
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=TARGET)))
        image, mount = directory / "image", directory / "disk"
        mount.mkdir()
        subprocess.run(["mkfs.ext4", "-q", image, "800M"], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)
        stack.callback(subprocess.run, ["umount", mount], check=True)
        server = stack.enter_context(Server(binary, 12, mount))
        for _ in range(12):
            server.send(0, "POST", "/batch.php", batch("POST", "/customers.php", FAT, 8))
        server.copy_first(12)
        subprocess.run(["fallocate", "--length", str(shutil.disk_usage(mount).free - 130 * MIB), mount / "ballast"], check=True)
        changes = json.dumps(batch("PUT", "/customers.php?id={}", {"city": "Kiel @N@"}, 96))
        free = watch(lambda: shutil.disk_usage(mount).free, partial(server.load, 12, 4, range(12), "POST", "/batch.php", body=changes))
        yield "12 tenants write to a disk with 130 MiB of free space: the least that stays", f"{min(free) / MIB:,.0f} MiB"


def ask(server, tenant, path):
    """A connection that has asked for a page. Its buffer is small, so the server keeps the unread part."""
    connection = socket.create_connection(server.address.split(":"), 3)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = f"Host: localhost\r\nAuthorization: Bearer {server.keys[tenant]}\r\nX-Forwarded-For: 198.51.100.{tenant}"
    connection.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n\r\n".encode())
    return connection


def unread(binary):
    with Server(binary, 2) as server:
        server.send(0, "POST", "/batch.php", batch("POST", "/customers.php", FAT, 1))
        server.send(0, "POST", "/batch.php", batch("POST", "/employees.php", FAT | {"customer_id": 1, "email": "fat@firm.example"}, 1))
        for _ in range(25):
            server.send(0, "POST", "/batch.php", batch("POST", "/hardware.php", FAT | {"employee_id": 1}, 8))
        server.send(1, "POST", "/batch.php", batch("POST", "/customers.php", FAT, 10))
        server.copy_first(1)

        def attack():
            connections = []
            for _ in range(20):
                connections += [ask(server, 0, "/hardware.php?limit=200&include=employee,customer") for _ in range(4)]
                time.sleep(0.5)

        def download():
            """Reads nearly all of a page of 900 KB, with 100 KB/s."""
            with ask(server, 1, "/customers.php?limit=200") as connection, connection.makefile("rb") as page:
                for _ in range(85):
                    assert len(page.read(10_000)) == 10_000, "the connection was cut"
                    time.sleep(0.1)

        with beside(attack, *[download] * 8) as running:
            pass
        complete = sum(not call.exception() for call in running[1:])
        yield "a tenant reads none of its large pages: another one's downloads that complete", f"{complete} of 8"
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        yield "the same: the server's memory at most", f"{int(status.split('VmHWM:')[1].split()[0]) / 1024:,.0f} MiB"


def lists(binary):
    with Server(binary, 16) as server:
        server.fill(10_000)
        # More tenants occupy all workers.
        server.copy_first(15)
        for name, connections in (("6 slow lists", 6), ("a slow list", 1)):
            # Longer than the last GET can take.
            with beside(*[partial(server.load, connections, 13, [tenant], "GET", *LISTS) for tenant in range(15)]):
                yield f"each of 15 tenants always has {name} under way", gets(server, 15, 8)


def burst(address, outstanding):
    """Every 2 s, each of 1,000 connections sends 50 requests that no worker answers, so many at a time."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    connections = [socket.create_connection(address.split(":")) for _ in range(1_000)]
    requests = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * outstanding
    connections[0].sendall(requests[: len(requests) // outstanding])
    length = len(connections[0].recv(4096))
    while True:
        begun = time.monotonic()
        for _ in range(50 // outstanding):
            for connection in connections:
                connection.sendall(requests)
            for connection in connections:
                left = outstanding * length
                while left:
                    left -= len(connection.recv(left))
        time.sleep(max(0, begun + 2 - time.monotonic()))


def pipelined(binary):
    with Server(binary, 1) as server:
        for name, outstanding in (("pipelined", 50), ("one at a time", 1)):
            # A process of its own: the threads of one process would delay each other.
            attack = multiprocessing.Process(target=burst, args=(server.address, outstanding))
            attack.start()
            connection, times, end = http.client.HTTPConnection(server.address), [], time.monotonic() + 20
            while time.monotonic() < end:
                times.append(server.send(0, "GET", "/whoami.php", connection=connection))
                time.sleep(0.005)
            attack.terminate()
            attack.join()
            yield f"1,000 connections send 50 requests each, {name}", f"{statistics.median(times):,.0f} ms, worst {max(times):,.0f}"


ATTACKS = {"hanging": hanging, "wal": wal, "space": space, "unread": unread, "lists": lists, "pipelined": pipelined}


def main():
    print(f"| attack | {' | '.join(map(str, OPTIONS.binary))} |")
    print("|---" * (len(OPTIONS.binary) + 1) + "|")
    for name in OPTIONS.only.split(","):
        for rows in zip(*(list(ATTACKS[name](binary)) for binary in OPTIONS.binary)):
            print(f"| {rows[0][0]} | {' | '.join(found for _, found in rows)} |", flush=True)


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("binary", nargs="+", type=Path)
PARSER.add_argument("--only", default=",".join(ATTACKS), help=f"of {', '.join(ATTACKS)}, with commas between them")
OPTIONS = PARSER.parse_args()
main()
