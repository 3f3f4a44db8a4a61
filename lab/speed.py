#!/usr/bin/env python3
"""Measures the service with wrk, which sends the next request of a connection when the last one is answered.

    lab/speed.py BINARY… [--sections get,calls] [--seconds 2] [--rounds 3] [--records 100000]

Several binaries take turns in each round, because the speed of a machine varies. The tables have the medians of the rounds. With several
binaries, the last column is the median ratio of the last binary to the first.

The section `calls` counts system calls with perf, as root. It fails if a request of the last binary makes more than its bar."""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "target"
TRADES = "Bakery Garage Pharmacy Bookshop Brewery Nursery Foundry Press".split()
CITIES = "Leipzig Kassel Zürich Graz Bremen Lyon Oslo Porto".split()
WORDS = """the with and for charger device user office replaced battery screen returned docking station keyboard warranty repair ordered
delivered invoice contract cable installed updated service checked assigned room floor adapter headset firmware encrypted memory workshop
label display observation licence rack""".split()
# `@N@` in a path or a body is another number in each request, and `@R@` a random number up to a thousand.
SCRIPT = """
local entries, number = {%s}, %d
local function fill(text) return (text:gsub("@N@", number):gsub("@R@", math.random(1000))) end
function request()
  number = number + 1
  local entry = entries[number %% #entries + 1]
  local headers = {Authorization = "Bearer " .. entry.key, ["X-Forwarded-For"] = "203.0.113." .. number %% 20}
  if entry.body then
    headers["Content-Type"] = "application/json"
    headers["Idempotency-Key"] = string.format("%%08x-0000-4000-8000-000000000000", number)
  end
  return wrk.format(entry.method, fill(entry.path), headers, entry.body and fill(entry.body))
end
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout + errors.status
  io.write(string.format('\\n{"requests": %%d, "seconds": %%f, "median": %%f, "p99": %%f, "worst": %%f, "failed": %%d}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3, failed))
end
"""
NUMBERS = itertools.count(1_000_000, 10_000_000)


def frequent(chance, words):
    """A word, the first ones far more often than the last ones."""
    return words[int(chance.random() ** 2 * len(words))]


def customer(number):
    """A record of real width, the same for the same number."""
    chance = random.Random(number)
    trade, city = frequent(chance, TRADES), frequent(chance, CITIES)
    notes = " ".join(frequent(chance, WORDS) for _ in range(chance.randrange(35, 80)))
    return {"name": f"{trade} {city} {number}", "customer_number": f"C-{number:07}", "email": f"office.{number}@{trade.lower()}.example",
            "phone": f"+49 341 {chance.randrange(10**7):07}", "street": f"Ring {chance.randrange(200)}", "city": city, "country": "DE",
            "postal_code": f"{chance.randrange(10**5):05}", "status": frequent(chance, ["active", "inactive", "prospect"]),
            "customer_since": f"20{chance.randrange(26):02}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}", "notes": notes}


# What each POST creates.
NEW = json.dumps(customer(1) | {"customer_number": "C-@N@"}, ensure_ascii=False)


class Server:
    """A binary that serves new tenants `tenant-0`, `tenant-1` and so on. Each has one key."""

    # The build's disk, because a sync in memory costs nothing.
    def __init__(self, binary, tenants, disk=TARGET, **environment):
        self.directory, self.binary, self.environment = Path(tempfile.mkdtemp(dir=disk)), binary, os.environ | environment
        secrets = self.start(*(word for number in range(tenants) for word in ("--create-tenant", f"tenant-{number}")))
        self.passwords, self.keys = secrets[::2], secrets[1::2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.directory)

    def start(self, *options):
        """Returns the passwords and keys that the server prints."""
        command = [self.binary, "--data-dir", self.directory / "data", "serve", "--listen", "127.0.0.1:0", "--rate-limit", "4000000000"]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=self.environment)
        secrets = []
        for line in self.process.stdout:
            if line.startswith(("panel password:", "API key:")):
                secrets.append(line.split()[-1])
            elif line.startswith("listening on http://"):
                self.address = line.split("//")[1].strip()
                return secrets
        raise SystemExit(f"{self.binary} did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def send(self, tenant, method, path, body=None, connection=None):
        """The milliseconds that one request takes."""
        connection = connection or http.client.HTTPConnection(self.address, timeout=60)
        headers = {"Authorization": f"Bearer {self.keys[tenant]}", "Content-Type": "application/json",
                   "X-Forwarded-For": f"198.51.100.{tenant}"}
        begun = time.monotonic()
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        text = response.read()
        assert response.status < 300, text
        return (time.monotonic() - begun) * 1e3

    def load(self, connections, seconds, tenants, method, *paths, body=None):
        """Puts load on the server, and returns what wrk has found."""
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            entries = ({"key": self.keys[tenant], "method": method, "path": path, "body": body} for path in paths for tenant in tenants)
            lua = ", ".join("{" + ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()
                                            if value) + "}" for entry in entries)
            script.write(SCRIPT % (lua, next(NUMBERS)))
            script.flush()
            command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--timeout", "60", "-s", script.name, f"http://{self.address}"]
            # Without time for a request that takes long, wrk has nothing to say.
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def fill(self, records):
        """Gives the first tenant so many records."""
        file = self.directory / "customers.jsonl"
        file.write_text("".join(json.dumps(customer(number)) + "\n" for number in range(records)))
        command = [self.binary, "--data-dir", self.directory / "data", "import", "tenant-0", "customers", file]
        subprocess.run(command, check=True, capture_output=True)

    def copy_first(self, count):
        """Gives the records of the first tenant to the next tenants, until so many have them."""
        self.stop()
        for tenant in range(1, count):
            shutil.copy(self.directory / "data/tenants/1.db", self.directory / f"data/tenants/{tenant + 1}.db")
        self.start()

    def processor_time(self):
        """In microseconds. The unit of /proc is a hundredth of a second."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 10_000


def speed(server, name, *load, **options):
    """The rate, the slowest hundredth, and the server's processor time for each request."""
    before = server.processor_time()
    found = server.load(32, OPTIONS.seconds, *load, **options)
    assert not found["failed"], f"{name}: {found}"
    yield name, found["requests"] / found["seconds"], "/s"
    yield f"{name}, p99", found["p99"], "ms"
    yield f"{name}, processor time", (server.processor_time() - before) / found["requests"], "µs"


def get(server, _):
    yield from speed(server, "GET one", [0], "GET", "/customers.php?id=@R@")
    yield from speed(server, "GET page", [0], "GET", "/customers.php")


# The most system calls of a request. Their number hardly depends on the load of the machine.
CALLS = {"GET one": (9.5, "GET", "/customers.php?id=@R@", None), "GET page": (9.5, "GET", "/customers.php", None),
         "POST": (15, "POST", "/customers.php", NEW)}
BARS = {f"{name}, system calls": bar for name, (bar, *_) in CALLS.items()}


def calls(server, _):
    if not shutil.which("perf"):
        print("perf is missing, so the system calls are not counted")
        return
    # The first POST starts the tenant's writer and its write-ahead log.
    server.send(0, "POST", "/customers.php", customer(0))
    for name, (_, method, path, body) in CALLS.items():
        server.load(32, 1, [0], method, path, body=body)
        events = "raw_syscalls:sys_enter,context-switches"
        command = ["perf", "stat", "-x,", "-e", events, "-p", str(server.process.pid)]
        perf = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        found = server.load(32, OPTIONS.seconds, [0], method, path, body=body)
        perf.send_signal(signal.SIGINT)
        lines = [line.split(",") for line in perf.communicate()[1].splitlines()]
        assert not found["failed"] and len(lines) == 2, (found, lines)
        for event, line in zip(("system calls", "context switches"), lines):
            yield f"{name}, {event}", int(line[0]) / found["requests"], ""


def post(server, _):
    yield from speed(server, "POST, one tenant", [0], "POST", "/customers.php", body=NEW)
    yield from speed(server, "POST, 200 tenants", range(200), "POST", "/customers.php", body=NEW)


def tenants(server, _):
    server.stop()
    begun = time.monotonic()
    server.start()
    server.send(0, "GET", "/customers.php")
    yield "start, 400 tenants", (time.monotonic() - begun) * 1e3, "ms"
    yield from speed(server, "GET, 400 tenants", range(400), "GET", "/customers.php")
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    yield "memory, 400 tenants", int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6, "MB"


def latency(server, _):
    changes = {"POST": ("POST", "/customers.php", NEW), "PUT": ("PUT", "/customers.php?id=@R@", '{"notes": "@N@"}')}
    for name, (method, path, body) in changes.items():
        found = server.load(1, OPTIONS.seconds, [0], method, path, body=body)
        assert not found["failed"], found
        for part in ("median", "p99", "worst"):
            yield f"{name} alone, {part}", found[part], "ms"


# The slowest requests that the contract allows. The words are in nearly all records, or in none.
LISTS = ["/customers.php?sort=-email&q=a+e+o+n+t+1+2+st+no+zq&total=true", "/customers.php?q=zz+yy&total=true"]
PAGES = ["/customers.php?limit=200&status=active&total=true"]
INCLUDES = ["/employees.php?limit=200&include=customer&total=true&sort=-id"]
BATCH = json.dumps({"operations": [{"method": "POST", "path": "/customers.php", "body": customer(number)} for number in range(100)]})
BUSY = {"lists": ("GET", LISTS, None), "pages": ("GET", PAGES, None), "includes": ("GET", INCLUDES, None),
        "batches": ("POST", ["/batch.php"], BATCH), "mixed": ("GET", LISTS + PAGES + INCLUDES, None)}


def fairness(server, round_number):
    """The GETs and POSTs of a quiet tenant beside busy ones. Each busy tenant has 20 connections from 20 addresses."""
    if round_number == 0:
        server.copy_first(9)
        employees = [{"method": "POST", "path": "/employees.php", "body": {"customer_id": 1, "email": "eva@ems.example"}}] * 100
        for tenant in range(9):
            server.send(tenant, "POST", "/batch.php", {"operations": employees})
            server.send(tenant, "POST", "/batch.php", {"operations": employees})
    for name, (method, paths, body) in BUSY.items():
        for count in (0, 2, 8):
            # A list may end after 5 s, so statuses do not matter.
            busy = [threading.Thread(target=server.load, args=(20, OPTIONS.seconds + 2, [tenant], method, *paths), kwargs={"body": body})
                    for tenant in range(count)]
            for thread in busy:
                thread.start()
            time.sleep(1)
            connection, end, gets, posts = http.client.HTTPConnection(server.address), time.monotonic() + OPTIONS.seconds, [], []
            while time.monotonic() < end:
                gets.append(server.send(8, "GET", "/customers.php?id=1", connection=connection))
                if len(gets) % 4 == 1:
                    posts.append(server.send(8, "POST", "/customers.php", {"name": "Quiet GmbH"}, connection))
                time.sleep(0.05)
            for thread in busy:
                thread.join()
            yield f"{count} tenants with {name}: GET", statistics.median(gets), "ms"
            yield f"{count} tenants with {name}: worst GET", max(gets), "ms"
            yield f"{count} tenants with {name}: worst POST", max(posts), "ms"


# The tenants of each section, and the records of the first one; None is the option.
SECTIONS = {"get": (get, 1, 1000), "calls": (calls, 1, 1000), "post": (post, 200, 0), "tenants": (tenants, 400, 0), "latency": (latency, 1, None),
            "fairness": (fairness, 9, None)}


def main():
    missed = []
    for name in OPTIONS.sections.split(","):
        section, count, records = SECTIONS[name]
        figures = {}
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(Server(binary, count)) for binary in OPTIONS.binary]
            for server in servers:
                server.fill(OPTIONS.records if records is None else records)
            for round_number in range(OPTIONS.rounds):
                for number, server in enumerate(servers):
                    for figure, value, unit in section(server, round_number):
                        figures.setdefault((figure, unit), [[] for _ in servers])[number].append(value)
        print(f"\n| {name} | {' | '.join(map(str, OPTIONS.binary))} |{' ratio |' if len(servers) > 1 else ''}")
        print("|---" * (len(servers) + 1 + (len(servers) > 1)) + "|")
        for (figure, unit), results in figures.items():
            cells = [f"{statistics.median(values):,.{0 if unit == '/s' else 2}f} {unit}" for values in results]
            ratios = [last / first for first, last in zip(results[0], results[-1])]
            cells += [f"{statistics.median(ratios):.2f}"] if len(servers) > 1 else []
            print(f"| {figure} | {' | '.join(cells)} |", flush=True)
            if statistics.median(results[-1]) > BARS.get(figure, float("inf")):
                missed.append(f"{figure}: {statistics.median(results[-1]):.2f}, at most {BARS[figure]}")
    if missed:
        raise SystemExit("\n".join(missed))


PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("binary", nargs="+", type=Path)
PARSER.add_argument("--sections", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}, with commas between them")
PARSER.add_argument("--seconds", type=int, default=2)
PARSER.add_argument("--rounds", type=int, default=3)
PARSER.add_argument("--records", type=int, default=100_000)
if __name__ == "__main__":
    OPTIONS = PARSER.parse_args()
    main()
