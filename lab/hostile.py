#!/usr/bin/env python3
"""Attacks the service as one or more tenants, or lets its disk hang, and prints what an innocent tenant notices.

    lab/hostile.py BINARY… [--only hanging,lists]

`40 of 40, 3 ms, worst 9` are GETs of the innocent tenant. One is due every tenth of a second, and those count that are answered within 3 s,
8 s beside lists, or 60 s beside moves. `1.5 s, 20 MiB, exit 1` is the dry run of an import: the processor time, and the memory of its
largest process. A process is stopped after 60 s of processor time, and aborts at 4 GiB of address space.

`space` and `moves` mount a file as a disk, so they need root. `hanging` compiles a library that holds syncs. `memory`, `slow` and `faults`
need GNU time."""

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
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from speed import LISTS, TARGET, Server

MIB = 2**20
# Texts of the greatest length: as JSON, a record has 60 KiB.
FAT = {"name": "Fat", "notes": "\1" * 5_000, "custom": {f"field_{number}": "€" * 500 for number in range(20)}}


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


def innocent(server, tenant, patience=3, method="GET", path="/customers.php?limit=1", body=None):
    def send():
        connection = http.client.HTTPConnection(server.address, timeout=patience)
        return server.send(tenant, method, path, body, connection)

    with ThreadPoolExecutor(40) as pool:
        running = []
        for _ in range(40):
            running.append(pool.submit(send))
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
                        found = innocent(server, 36)
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


@contextlib.contextmanager
def small_disk():
    """A disk of 800 MiB."""
    with tempfile.TemporaryDirectory(dir=TARGET) as directory:
        image, mount = Path(directory) / "image", Path(directory) / "disk"
        mount.mkdir()
        subprocess.run(["mkfs.ext4", "-q", image, "800M"], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)
        try:
            yield mount
        finally:
            subprocess.run(["umount", mount], check=True)


def space(binary):
    with small_disk() as mount, Server(binary, 12, mount) as server:
        for _ in range(12):
            server.send(0, "POST", "/batch.php", batch("POST", "/customers.php", FAT, 8))
        server.copy_first(12)
        subprocess.run(["fallocate", "--length", str(shutil.disk_usage(mount).free - 280 * MIB), mount / "ballast"], check=True)
        changes = json.dumps(batch("PUT", "/customers.php?id={}", {"city": "Kiel @N@"}, 96))
        free = watch(lambda: shutil.disk_usage(mount).free, partial(server.load, 12, 4, range(12), "POST", "/batch.php", body=changes))
        # A server whose writers wait for each other would not stop.
        server.process.kill()
        yield "12 tenants write to a disk with 280 MiB of free space: the least that stays", f"{min(free) / MIB:,.0f} MiB"


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
        for _ in range(2):
            server.send(1, "POST", "/batch.php", batch("POST", "/customers.php", FAT, 8))
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
                yield f"each of 15 tenants always has {name} under way", innocent(server, 15, 8)


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


@contextlib.contextmanager
def devices(binary, disk=TARGET):
    """A server with four attackers, whose employees have 20,000 and 499 devices, and an innocent tenant."""
    with Server(binary, 5, disk) as server:
        for tenant in (0, 4):
            server.send(tenant, "POST", "/batch.php", batch("POST", "/customers.php", {"name": "Ada GmbH"}, 2))
        for number in (1, 2):
            server.send(0, "POST", "/employees.php", {"customer_id": 1, "email": f"eva{number}@ada.example"})
        file = server.directory / "hardware.jsonl"
        file.write_text("".join(json.dumps({"name": f"Laptop {number}", "employee_id": 1 + number // 20_000}) + "\n" for number in range(20_499)))
        subprocess.run([binary, "--data-dir", server.directory / "data", "import", "tenant-0", "hardware", file], check=True, capture_output=True)
        server.copy_first(4)
        try:
            yield server
        finally:
            # A server that still moves devices would not stop.
            server.process.kill()


def back_and_forth(employee, count):
    """A batch that moves an employee to the other customer, back, and so on."""
    path = f"/employees.php?id={employee}"
    return {"operations": [{"method": "PUT", "path": path, "body": {"customer_id": 2 - number % 2}} for number in range(count)]}


def answer(server, tenant, *request):
    """How a request of an attacker ends."""
    begun = time.monotonic()
    try:
        server.send(tenant, *request)
        found = "done"
    except AssertionError as error:
        found = json.loads(error.args[0])["error"]["code"]
    except OSError:
        found = "no answer"
    return f"{found}, {time.monotonic() - begun:,.1f} s"


def terminate(server):
    """How long the server takes to end after SIGTERM."""
    begun = time.monotonic()
    server.process.terminate()
    try:
        return f"exit {server.process.wait(60)}, {time.monotonic() - begun:,.1f} s"
    except subprocess.TimeoutExpired:
        return "still there after 60 s"


def moves(binary):
    """An employee moves to another customer, and the devices move along."""
    put = partial(innocent, tenant=4, patience=60, method="PUT", path="/customers.php?id=1", body={"city": "Kiel"})
    get = partial(innocent, tenant=4, patience=60)
    for name, *request in (("moves", "PUT", "/employees.php?id=1", {"customer_id": 2}),
                           ("moves 20 times in a batch", "POST", "/batch.php", back_and_forth(1, 20)),
                           ("moves 100 times in a batch", "POST", "/batch.php", back_and_forth(1, 100))):
        with small_disk() as disk, devices(binary, disk) as server:
            with beside(partial(get, server), partial(put, server)) as running:
                found = answer(server, 0, *request)
            name = f"an employee with 20,000 devices {name}, with 0.7 GiB free"
            yield f"{name}: the answer", found
            yield "the same: GET", running[0].result()
            yield "the same: PUT", running[1].result()
    with devices(binary) as server:
        batches = [partial(answer, server, tenant, "POST", "/batch.php", back_and_forth(1, 100)) for tenant in range(4)]
        with beside(*batches):
            yield "4 tenants send this batch, then SIGTERM", terminate(server)
    with devices(binary) as server:
        attack = partial(server.load, 8, 8, range(4), "POST", "/batch.php", body=json.dumps(back_and_forth(2, 2)))
        with beside(attack, partial(get, server), partial(put, server)) as running:
            pass
        yield "4 tenants always move 998 devices in a request: GET", running[1].result()
        yield "the same: PUT", running[2].result()
        with beside(attack):
            yield "the same, then SIGTERM", terminate(server)


# The files of all binaries.
FILES = tempfile.TemporaryDirectory(dir=TARGET)


def imports(binary, *files):
    """The size of each file, and what its dry run takes."""
    with Server(binary, 1) as server:
        for name, make, *options in files:
            file, report = Path(FILES.name) / name, server.directory / "report"
            if not file.exists():
                make(file)
            limits = ["time", "-q", "-f", "%U %S %M", "-o", report, "prlimit", f"--as={4096 * MIB}", "--cpu=60", "timeout", "600"]
            command = [binary, "--data-dir", server.directory / "data", "import", "tenant-0", "customers", file, "--dry-run", *options]
            code = subprocess.run([*limits, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
            user, system, kibibytes = map(float, report.read_text().split())
            found = {124: "stopped", 134: "aborted", 137: "stopped"}.get(code, f"exit {code}")
            attack = f"`{name}`{', with `--json`' if options else ''}, {file.stat().st_size:,} bytes"
            yield attack, f"{user + system:,.1f} s, {kibibytes / 1024:,.0f} MiB, {found}"


def write(path, pieces):
    with path.open("w") as file:
        file.writelines(pieces)


def pack(path, parts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, pieces in parts.items():
            with archive.open(name, "w") as part:
                for piece in pieces:
                    part.write(piece.encode())


def row(*texts):
    return "<row>" + "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts) + "</row>"


def xlsx(rows=(), texts=(), sheets=('<sheet name="A" sheetId="1" r:id="r1"/>',)):
    """Writes a workbook from pieces of XML, below a heading `name`."""
    formats = "http://schemas.openxmlformats.org"
    main, relations = f'xmlns="{formats}/spreadsheetml/2006/main"', f"{formats}/officeDocument/2006/relationships"

    def relation(kind, target):
        relation = f'<Relationship Id="r1" Type="{relations}/{kind}" Target="{target}"/>'
        return [f'<Relationships xmlns="{formats}/package/2006/relationships">{relation}</Relationships>']

    return partial(pack, parts={
        "_rels/.rels": relation("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": [f'<workbook {main} xmlns:r="{relations}"><sheets>', *sheets, "</sheets></workbook>"],
        "xl/_rels/workbook.xml.rels": relation("worksheet", "worksheets/sheet1.xml"),
        "xl/sharedStrings.xml": [f"<sst {main}>", *texts, "</sst>"],
        "xl/worksheets/sheet1.xml": [f"<worksheet {main}><sheetData>", row("name"), *rows, "</sheetData></worksheet>"]})


def ods(rows):
    """Writes a workbook from pieces of XML, below a heading `name`."""
    names = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text"))
    heading = '<table:table-row><table:table-cell office:value-type="string"><text:p>name</text:p></table:table-cell></table:table-row>'
    start = f'<office:document-content {names}><office:body><office:spreadsheet><table:table table:name="A">{heading}'
    end = "</table:table></office:spreadsheet></office:body></office:document-content>"
    return partial(pack, parts={"mimetype": ["application/vnd.oasis.opendocument.spreadsheet"], "content.xml": [start, *rows, end]})


TEXT = "x" * 1_000_000
# A row of 1,000 cells that refer to the first shared text.
REFERENCES = "<row>" + '<c t="s"><v>0</v></c>' * 1_000 + "</row>"


def memory(binary):
    """Small workbooks that are large in memory."""
    repeated = '<table:table-cell office:value-type="string" table:number-columns-repeated="1000">'
    yield from imports(
        binary,
        ("harmless.xlsx", xlsx([row("Ada GmbH")])),
        ("text-1000-times.ods", ods([f"<table:table-row>{repeated}<text:p>{TEXT}</text:p></table:table-cell></table:table-row>"])),
        ("text-1000-times.xlsx", xlsx([REFERENCES], [f"<si><t>{TEXT}</t></si>"])),
        ("long-names.xlsx", xlsx(sheets=[f'<sheet name="{TEXT}" sheetId="1" r:id="r1"/>'] * 600)),
        ("empty-texts.xlsx", xlsx(texts=["<si/>" * 1_000_000] * 50)))


def slow(binary):
    """Small workbooks that take long."""
    spaces = '<table:covered-table-cell><text:p><text:s text:c="1000000"/></text:p></table:covered-table-cell>'
    yield from imports(
        binary,
        ("spaces.ods", ods(["<table:table-row>", *[spaces * 1_000] * 400, "</table:table-row>"])),
        ("elements.xlsx", xlsx(["<a/>" * 2**18] * 1_023)),
        ("attributes.xlsx", xlsx(["<c" + ' a=""' * 200_000 + "/>"] * 1_000)),
        ("text-1000-times-in-998-rows.xlsx", xlsx([REFERENCES] * 998, [f"<si><t>{TEXT}</t></si>"])))


def faults(binary):
    """Small files with many faults."""
    wrong_cell = '<table:table-cell office:value-type="string"><text:p>wrong</text:p></table:table-cell>'
    members = ",".join(f'"m{number}":1' for number in range(90_000))
    json_lines = partial(write, pieces=[f"{{{members}}}\n"] * 6)
    wide = partial(write, pieces=["name\n"] + ["x," * 500_000 + "\n"] * 3)
    yield from imports(
        binary,
        ("faults.ods", ods([f'<table:table-row table:number-rows-repeated="1048575">{wrong_cell * 7}</table:table-row>']), "--json"),
        ("faults.xlsx", xlsx([row(*"abcdefg") * 1_000] * 1_048), "--json"),
        ("faults.csv", partial(write, pieces=["name\n"] + ["a,b,c,d\n"] * 600_000), "--json"),
        ("wide.csv", wide), ("wide.csv", wide, "--json"),
        ("members.jsonl", json_lines), ("members.jsonl", json_lines, "--json"))


ATTACKS = {attack.__name__: attack for attack in (hanging, wal, space, unread, lists, pipelined, moves, memory, slow, faults)}


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
