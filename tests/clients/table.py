"""Runs the table of examples/clients/README.md: each row with each client that can be run here, against the real server.

    python3 table.py BINARY

A proxy in front of the server loses, delays or replaces answers. Needs Node.js and jq. PowerShell is in no registry.
"""

import http.server
import json
import os
import socketserver
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from service import Server

CLIENTS = Path(__file__).resolve().parents[2] / "examples/clients"
BEGIN = {
    "python": ("python3", "-Bc", "import datetime, os, sys\nfrom tenantdesk import Desk, DeskError\n"
               "desk = Desk(os.environ['TENANTDESK_URL'], os.environ['TENANTDESK_KEY'], patience=float(os.environ['TENANTDESK_PATIENCE']))\n"),
    "node": ("node", "--input-type=module", "-e", "import { Desk } from './tenantdesk.mjs';\nconst { env } = process;\n"
             "const desk = new Desk(env.TENANTDESK_URL, env.TENANTDESK_KEY, { patience: Number(env.TENANTDESK_PATIENCE) });\n"),
    "shell": ("bash", "-c", ". ./tenantdesk.sh\nset -euo pipefail\n"),
}


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on. `plan(number)` says what happens to the answer of the try with this number: None, a status, or "lost"."""

    protocol_version, plan, behind, seen = "HTTP/1.1", staticmethod(lambda number: None), "", []

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append(self.headers.get("Idempotency-Key"))
        self.close_connection = True
        fate = self.plan(len(self.seen))
        if fate == "silence":
            return time.sleep(20)
        if fate == "window":
            return self.answer(429, b"{}", {"Retry-After": "60", "X-RateLimit-Reset": str(int(time.time()) + 2)})
        if fate in (429, 503):
            return self.answer(fate, b'{"error": {"status": %d, "code": "busy", "message": "Wait."}}' % fate, {"Retry-After": "1"})
        if fate == "html":
            return self.answer(200, b"<html>Sign in</html>", {})
        if isinstance(fate, int):
            return self.answer(fate, b"", {"Location": "http://other.example" + self.path})
        names = ("Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Prefer")
        headers = {name: self.headers[name] for name in names if self.headers[name]}
        request = urllib.request.Request(self.behind + self.path, body or None, headers, method=self.command)
        try:
            with urllib.request.urlopen(request) as found:
                status, text, tag = found.status, found.read(), found.headers.get("ETag")
        except urllib.error.HTTPError as found:
            status, text, tag = found.code, found.read(), found.headers.get("ETag")
        if fate != "lost":
            self.answer(status, text, {"ETag": tag} if tag else {})

    do_GET = do_POST = do_PUT = do_DELETE = handle_any

    def answer(self, status, text, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if status != 204:
            self.wfile.write(text)

    def log_message(self, *_):
        pass


class Row:
    """The environment in which the scripts of a row run."""

    def __init__(self, server, proxy):
        self.server, self.url = server, f"http://127.0.0.1:{proxy.server_port}"
        Proxy.behind = server.url

    def run(self, name, script, plan=lambda number: None, url=None, patience="120", key=None, **variables):
        """Runs a script of a client. Returns its status, its output and what it says of errors."""
        Proxy.plan, Proxy.seen = staticmethod(plan), []
        with tempfile.TemporaryDirectory() as directory:
            environment = {**os.environ, "TENANTDESK_URL": self.url if url is None else url, "TENANTDESK_KEY": key or self.server.key,
                           "TENANTDESK_PATIENCE": patience, "DIRECTORY": directory, **variables}
            *program, begin = BEGIN[name]
            done = subprocess.run([*program, begin + script], cwd=CLIENTS, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout.strip(), done.stderr

    def ask(self, path):
        request = urllib.request.Request(self.server.url + path, headers={"Authorization": f"Bearer {self.server.key}"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def total(self, query=""):
        return self.ask(f"/customers.php?limit=1&total=true{query}")["total"]


CREATE = {
    "python": "print(desk.create('customers', name='Once', city='{0}')['id'])",
    "node": "console.log((await desk.create('customers', {{ name: 'Once', city: '{0}' }})).id)",
    "shell": "desk POST /customers.php '{{\"name\": \"Once\", \"city\": \"{0}\"}}' | jq .id",
}


def create(row, name, plan, **options):
    """Creates a customer with a city of its own. Returns what the client says, and how many there are then."""
    city = uuid.uuid4().hex
    status, said, errors = row.run(name, CREATE[name].format(city), plan, **options)
    return status, said, errors, row.total(f"&city={city}")


def repeated(row, name, *fates):
    status, said, errors, made = create(row, name, lambda number: dict(enumerate(fates, 1)).get(number))
    assert (status, made) == (0, 1) and said, errors
    assert len(Proxy.seen) == len(fates) + 1 and len(set(Proxy.seen)) == 1, Proxy.seen


def a_lost_connection(row, name):
    repeated(row, name, "lost", "lost")


def a_429(row, name):
    repeated(row, name, 429)


def the_end_of_a_window(row, name):
    """The server says 60 s, but the window ends before that, so the patience suffices."""
    status, said, errors, made = create(row, name, lambda number: "window" if number == 1 else None, patience="20")
    assert (status, made) == (0, 1), errors


def a_503(row, name):
    repeated(row, name, 503, 503)


def patience_that_ends(row, name):
    status, said, errors, made = create(row, name, lambda number: 503, patience="4")
    assert status == 1 and not said and made == 0 and "503 busy: Wait." in errors, errors
    assert 2 <= len(Proxy.seen) <= 6, "a few tries with pauses"


def no_answer(row, name):
    """One try ends with the patience, and the error is one of the client."""
    scripts = {
        "python": "try: desk.page('customers')\nexcept DeskError as error: print(error.status, error.code)",
        "node": "await desk.page('customers').catch((error) => console.log(error.status, error.code))",
        "shell": "desk GET /customers.php || echo 0 no_answer",
    }
    status, said, errors = row.run(name, scripts[name], lambda number: "silence", patience="2")
    assert (status, said, len(Proxy.seen)) == (0, "0 no_answer", 1), (said, errors, Proxy.seen)


class Tls(socketserver.BaseRequestHandler):
    """Answers nothing but TLS, with a certificate that nobody has signed."""

    tries, context = 0, None

    def handle(self):
        Tls.tries += 1
        try:
            self.context.wrap_socket(self.request, server_side=True).recv(1)
        except OSError:
            pass


def a_fault_that_stays(row, name):
    """Without a repeat: a certificate that is not valid; for Python and Node.js, also a port without TLS."""
    with tempfile.TemporaryDirectory() as directory, socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tls) as server:
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", f"{directory}/key", "-out", f"{directory}/certificate"]
        subprocess.run(made, check=True, capture_output=True)
        Tls.tries, Tls.context = 0, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        Tls.context.load_cert_chain(f"{directory}/certificate", f"{directory}/key")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, said, errors = row.run(name, CREATE[name].format("x"), url=f"https://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert status == 1 and not said and Tls.tries == 1 and "certificate" in errors, errors
    if name != "shell":
        status, said, errors = row.run(name, CREATE[name].format("x"), url=row.server.url.replace("http:", "https:"))
        assert status == 1 and not said and "no_answer" in errors and row.server.url[7:] in errors, errors


def a_redirect(row, name):
    for fate in (301, 302, 303, 307, 308):
        status, said, errors, made = create(row, name, lambda number, fate=fate: fate)
        expected = f"{fate} redirected: The server redirects to http://other.example/customers.php"
        assert status == 1 and not said and made == 0 and expected in errors and len(Proxy.seen) == 1, errors


def a_page_in_place_of_an_answer(row, name):
    status, said, errors, made = create(row, name, lambda number: "html")
    assert status == 1 and not said and made == 0 and "200 unknown: The answer is not JSON" in errors, errors


def a_trailing_slash(row, name):
    assert create(row, name, lambda number: None, url=row.url + "/")[3] == 1


def no_address(row, name):
    for url in ("", "desk.example", "localhost:8080"):
        status, said, errors = row.run(name, CREATE[name].format("x"), url=url)
        assert status == 1 and not said and not Proxy.seen and "must begin with https://" in errors, errors


def an_unset_value(row, name):
    scripts = {
        "python": "desk.create('customers', name='Unset', city=None); print(len(desk.page('customers', name='Unset', city=None)['data']))",
        "node": "await desk.create('customers', { name: 'Unset', city: null });\n"
                "for (const call of [desk.create('customers', { name: 'Unset', city: undefined }), desk.page('customers', { city: undefined })])\n"
                "  await call.then(() => process.exit(3), () => 0);\n"
                "console.log((await desk.page('customers', { name: 'Unset', city: null })).data.length)",
        "shell": "desk POST /customers.php '{\"name\": \"Unset\", \"city\": null}' >/dev/null; desk_all '/customers.php?name=Unset&city=null' | wc -l",
    }
    before = row.total("&name=Unset")
    status, said, errors = row.run(name, scripts[name])
    assert (status, said) == (0, str(before + 1)), errors


CHANGE = {
    "python": "desk.update('customers', int(os.environ['ID']), if_match={0}, city='Lost')",
    "node": "await desk.update('customers', env.ID, {{ city: 'Lost' }}, {{ ifMatch: {0} }})",
    "shell": "desk PUT \"/customers.php?id=$ID\" '{{\"city\": \"Lost\"}}' {0}",
}


def refused_change(row, name, version):
    """A change with a version that is none, or is not the record's: nothing is stored. Returns the status, and what the client says of it."""
    shop = create(row, name, lambda number: None)[1]
    status, said, errors = row.run(name, CHANGE[name].format(version), ID=shop)
    assert not said and row.ask(f"/customers.php?id={shop}")["city"] != "Lost", said
    return status, errors


def an_unset_version(row, name):
    status, errors = refused_change(row, name, {"python": "None", "node": "undefined", "shell": '""'}[name])
    assert status == 1 and not Proxy.seen and errors, errors


def an_old_version(row, name):
    status, errors = refused_change(row, name, "'\"1\"'")
    assert status == (12 if name == "shell" else 1) and "412 precondition_failed" in errors, errors


def a_misspelt_field(row, name):
    scripts = {
        "python": "desk.create('customers', name='Misspelt', citty='Kiel')",
        "node": "await desk.create('customers', { name: 'Misspelt', citty: 'Kiel' })",
        "shell": "desk POST /customers.php '{\"name\": \"Misspelt\", \"citty\": \"Kiel\"}'",
    }
    status, said, errors = row.run(name, scripts[name])
    assert status == 1 and not said and "400 bad_request" in errors and "citty" in errors, errors


def not_a_number(row, name):
    scripts = {
        "python": "desk.create('hardware', name='NaN', purchase_cost_cents=float('nan'))",
        "node": "await desk.create('hardware', { name: 'NaN', purchase_cost_cents: NaN })",
        "shell": "desk POST /hardware.php '{\"name\": \"NaN\", \"purchase_cost_cents\": NaN}'",
    }
    status, said, errors = row.run(name, scripts[name])
    assert status == 1 and not said and row.ask("/hardware.php?name=NaN")["data"] == [], errors


def a_date(row, name):
    scripts = {
        "python": "day = datetime.date(2027, 1, 31)\ndesk.create('hardware', name='Dated', warranty_until=day)\n"
                  "print(desk.page('hardware', warranty_until=day)['data'][0]['warranty_until'])",
        "node": "const day = '2027-01-31';\nawait desk.create('hardware', { name: 'Dated', warranty_until: day });\n"
                "console.log((await desk.page('hardware', { warranty_until: day })).data[0].warranty_until)",
        "shell": "desk POST /hardware.php '{\"name\": \"Dated\", \"warranty_until\": \"2027-01-31\"}' >/dev/null\n"
                 "desk_all '/hardware.php?warranty_until=2027-01-31' | head -n 1 | jq -r .warranty_until",
    }
    status, said, errors = row.run(name, scripts[name])
    assert (status, said) == (0, "2027-01-31"), errors


def a_moment(row, name):
    """Midnight is a moment, too, and not the end of that day."""
    scripts = {
        "python": "desk.create('customers', name='Today')\nday = datetime.datetime.now(datetime.timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)\n"
                  "local = day.astimezone().replace(tzinfo=None)\n"
                  "print(*(len(desk.page('customers', name='Today', **{name: value})['data']) > 0 for value in (day, local)\n"
                  "        for name in ('created_at_from', 'created_at_to', 'created_at')))",
        "node": "await desk.create('customers', { name: 'Today' });\nconst day = new Date();\nday.setUTCHours(0, 0, 0, 0);\nconst found = [];\n"
                "for (const _ of [1, 2]) for (const name of ['created_at_from', 'created_at_to', 'created_at'])\n"
                "  found.push((await desk.page('customers', { name: 'Today', [name]: day })).data.length ? 'True' : 'False');\nconsole.log(...found)",
    }
    if name in scripts:
        status, said, errors = row.run(name, scripts[name], TZ="Asia/Tokyo")
        assert (status, said) == (0, "True False False True False False"), errors + said


EDIT = {
    "python": "for _ in range(int(os.environ['EDITS'])): desk.change('customers', int(os.environ['ID']), lambda record: {'notes': (record['notes'] or '') + 'x'})",
    "node": "for (let edit = 0; edit < env.EDITS; edit++) await desk.change('customers', env.ID, (record) => ({ notes: (record.notes ?? '') + 'x' }));",
    "shell": "for _ in $(seq $EDITS); do desk_change \"/customers.php?id=$ID\" '{notes: \"\\(.notes // \"\")x\"}' >/dev/null; done",
}


def a_conflict(row, name):
    """8 writers change one record 25 times each. None gives up, and no change is lost. Each edit of the shell starts many processes."""
    writers, edits = (4, 5) if name == "shell" else (8, 25)
    shop = int(create(row, name, lambda number: None)[1])
    *program, begin = BEGIN[name]
    environment = {**os.environ, "TENANTDESK_URL": row.server.url, "TENANTDESK_KEY": row.server.key, "TENANTDESK_PATIENCE": "120", "ID": str(shop), "EDITS": str(edits)}
    running = [subprocess.Popen([*program, begin + EDIT[name]], cwd=CLIENTS, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(writers)]
    errors = [writer.communicate()[1] for writer in running]
    assert not any(writer.returncode for writer in running) and not any(errors), errors
    assert row.ask(f"/customers.php?id={shop}")["notes"] == "x" * (writers * edits)


def an_own_idempotency_key(row, name):
    key = str(uuid.uuid4())
    scripts = {
        "python": "print(desk.create('customers', name='Own', idempotency_key=os.environ['OWN'])['id'])",
        "node": "console.log((await desk.create('customers', { name: 'Own' }, { idempotencyKey: env.OWN })).id)",
        "shell": "TENANTDESK_IDEMPOTENCY_KEY=$OWN desk POST /customers.php '{\"name\": \"Own\"}' | jq .id",
    }
    first, again = (row.run(name, scripts[name], OWN=key) for _ in range(2))
    assert first[0] == 0 and first[1] == again[1] != "", (first, again)


def the_reason_of_an_error(row, name):
    def run(*operations):
        scripts = {
            "python": f"print(desk.batch({operations!r})[0]['status'])",
            "node": f"console.log((await desk.batch({json.dumps(operations)}))[0].status)",
            "shell": "printf '%s\\n' " + " ".join(f"'{json.dumps(operation)}'" for operation in operations) + " | desk_batch | jq .status",
        }
        return row.run(name, scripts[name])

    good, *wrong = [{"method": "POST", "path": "/customers.php", "body": {"name": "Shop", **body}} for body in
                    ({}, {"customer_since": "24.12.2026", "status": "gone"}, {"email": "x"})]
    status, said, errors = run(good)
    assert (status, said) == (0, "201"), errors
    status, said, errors = run(good, *wrong)
    assert status == 1 and not said, said
    lines = ["422 validation_failed: Operation 1: ", "operation 1: customer_since: ", "operation 1: status: ", "operation 2: email: ", "24.12.2026"]
    assert all(line in errors for line in lines), errors


def a_record_that_may_exist(row, name):
    number = uuid.uuid4().hex
    scripts = {
        "python": "make = lambda name: desk.create_if_absent('customers', 'customer_number', name=name, customer_number=os.environ['NUMBER'])\n"
                  "(id, first), (same, again) = make('Kept'), make('Lost')\nprint(id == same, first, again)\n"
                  "desk.create_or_update('customers', 'customer_number', name='Changed', customer_number=os.environ['NUMBER'])",
        "node": "const make = (name) => desk.createIfAbsent('customers', 'customer_number', { name, customer_number: env.NUMBER });\n"
                "const [made, found] = [await make('Kept'), await make('Lost')];\n"
                "const said = (is) => (is ? 'True' : 'False');\nconsole.log(said(made.id === found.id), said(made.isNew), said(found.isNew));\n"
                "await desk.createOrUpdate('customers', 'customer_number', { name: 'Changed', customer_number: env.NUMBER });",
        "shell": "make() { desk_create_if_absent '/customers.php?update_by=customer_number' \"{\\\"name\\\": \\\"$1\\\", \\\"customer_number\\\": \\\"$NUMBER\\\"}\"; }\n"
                 "id=$(make Kept)\n[ \"$(make Lost)\" = \"$id\" ] && echo True True False\n"
                 "desk POST '/customers.php?update_by=customer_number' \"{\\\"name\\\": \\\"Changed\\\", \\\"customer_number\\\": \\\"$NUMBER\\\"}\" >/dev/null",
    }
    status, said, errors = row.run(name, scripts[name], NUMBER=number)
    assert (status, said) == (0, "True True False"), errors
    assert [found["name"] for found in row.ask(f"/customers.php?customer_number={number}")["data"]] == ["Changed"]


def bulk(row, name):
    """A run that is killed after its second batch and repeats with its key changes nothing twice. An error counts from the first operation."""
    city = uuid.uuid4().hex
    scripts = {
        "python": "operations = [{'method': 'POST', 'path': '/customers.php', 'body': {'name': f'Shop {n}', 'city': os.environ['CITY']}} for n in range(250)]\n"
                  "if 'WRONG' in os.environ: operations[241]['body']['status'] = 'gone'\n"
                  "print(len(desk.bulk(operations, idempotency_key=os.environ['RUN'])))",
        "node": "const operations = Array.from({ length: 250 }, (_, n) => ({ method: 'POST', path: '/customers.php', body: { name: `Shop ${n}`, city: env.CITY } }));\n"
                "if (env.WRONG) operations[241].body.status = 'gone';\n"
                "console.log((await desk.bulk(operations, { idempotencyKey: env.RUN })).length)",
    }
    if name in scripts:
        cut = row.run(name, scripts[name], lambda number: 301 if number == 3 else None, RUN="one", CITY=city)
        assert cut[0] == 1 and row.total(f"&city={city}") == 200, cut
        done = row.run(name, scripts[name], RUN="one", CITY=city)
        assert done[:2] == (0, "250") and row.total(f"&city={city}") == 250, done
        wrong = row.run(name, scripts[name], RUN="two", CITY=city, WRONG="1")
        assert wrong[0] == 1 and "that begins with operation 200" in wrong[2] and "status" in wrong[2], wrong[2]
        assert row.total(f"&city={city}") == 450


def all_pages(row, name):
    """After `bulk`, there are several."""
    scripts = {
        "python": "print(sum(1 for _ in desk.all('customers')))",
        "node": "let count = 0;\nfor await (const _ of desk.all('customers')) count++;\nconsole.log(count)",
        "shell": "desk_all /customers.php | wc -l",
    }
    status, said, errors = row.run(name, scripts[name])
    assert (status, said) == (0, str(row.total())), errors


FOLLOW = {
    "python": """
_, cursor = next(desk.follow(wait=0.01, resource="customers"))
shop = desk.create("customers", name="Followed")
desk.update("customers", shop["id"], city="Kiel")
desk.delete("customers", shop["id"])
seen = []
for entries, cursor in desk.follow(cursor, wait=0.01, resource="customers"):
    seen += [entry["action"] for entry in entries]
    if len(seen) > 3 or seen and not entries:
        break
print(*seen)
""",
    "node": """
const options = { wait: 0.01, resource: "customers" };
const { cursor } = (await desk.follow("now", options).next()).value;
const shop = await desk.create("customers", { name: "Followed" });
await desk.update("customers", shop.id, { city: "Kiel" });
await desk.delete("customers", shop.id);
const seen = [];
for await (const { entries } of desk.follow(cursor, options)) {
  seen.push(...entries.map(({ action }) => action));
  if (seen.length > 3 || (seen.length && !entries.length)) break;
}
console.log(...seen);
""",
    # The changes come while the follower waits. What its command did not take comes again.
    "shell": """
sleep() {
  shop=$(desk POST /customers.php '{"name": "Followed"}' | jq .id)
  desk PUT "/customers.php?id=$shop" '{"city": "Kiel"}' >/dev/null
  desk DELETE "/customers.php?id=$shop" >/dev/null
}
take() { jq -r .action | paste -sd ' '; false; }
desk_follow "$DIRECTORY/cursor" false || desk_follow "$DIRECTORY/cursor" take || true
""",
}


def follow(row, name):
    """Each change since the cursor comes once and in order."""
    status, said, errors = row.run(name, FOLLOW[name])
    assert (status, said) == (0, "created updated deleted"), errors + said


def mirror(row, name):
    """The copy is the same as the lists, after the first call and after changes; also after the log lost the cursor."""
    scripts = {
        "python": "import json\npath = os.environ['DIRECTORY'] + '/copy'\n"
                  "def same():\n    copy = desk.mirror(path)\n    return all(copy[r] == {x['id']: x for x in desk.all(r)} for r in copy)\n"
                  "first = same()\nshop = desk.create('customers', name='Mirrored')\ndesk.create('hardware', name='PC', customer_id=shop['id'])\n"
                  "gone = desk.create('customers', name='Gone')\ndesk.mirror(path)\ndesk.delete('customers', gone['id'])\n"
                  "desk.update('customers', shop['id'], city='Kiel')\nlater = same()\n"
                  "stored = json.load(open(path))\nstored['cursor'] = os.environ['LOST']\nstored['copy']['customers'] = {}\njson.dump(stored, open(path, 'w'))\n"
                  "print(first, later, same())",
        "node": "import { readFileSync, writeFileSync } from 'node:fs';\nimport { isDeepStrictEqual } from 'node:util';\nconst path = env.DIRECTORY + '/copy';\n"
                "async function same() {\n  const copy = await desk.mirror(path);\n  for (const resource in copy) {\n    const all = {};\n"
                "    for await (const record of desk.all(resource)) all[record.id] = record;\n    if (!isDeepStrictEqual(all, copy[resource])) return 'False';\n  }\n  return 'True';\n}\n"
                "const first = await same();\nconst shop = await desk.create('customers', { name: 'Mirrored' });\nawait desk.create('hardware', { name: 'PC', customer_id: shop.id });\n"
                "const gone = await desk.create('customers', { name: 'Gone' });\nawait desk.mirror(path);\nawait desk.delete('customers', gone.id);\n"
                "await desk.update('customers', shop.id, { city: 'Kiel' });\nconst later = await same();\n"
                "const stored = JSON.parse(readFileSync(path, 'utf8'));\nstored.cursor = env.LOST;\nstored.copy.customers = {};\nwriteFileSync(path, JSON.stringify(stored));\n"
                "console.log(first, later, await same())",
    }
    if name in scripts:
        # A cursor of the data directory before a restore is gone.
        status, said, errors = row.run(name, scripts[name], LOST=row.server.lost_cursor)
        assert (status, said) == (0, "True True True"), said + errors


def a_copy_that_would_lack_changes(row, name):
    """A key that may not read all resources would skip their changes for good."""
    scripts = {"python": "desk.mirror(os.environ['DIRECTORY'] + '/copy')", "node": "await desk.mirror(env.DIRECTORY + '/copy')"}
    if name in scripts:
        made = row.server.run("--json", "key", "create", "acme", "--name", "part", "--scope", "customers:read")
        status, said, errors = row.run(name, scripts[name], key=json.loads(made)["key"])
        assert status == 1 and "insufficient_scope" in errors and "employees:read, hardware:read" in errors, errors


def a_damaged_copy(row, name):
    scripts = {"python": "desk.mirror(os.environ['COPY'])", "node": "await desk.mirror(env.COPY)"}
    for content in ('{"cursor": "x", "co', "[]", "null") if name in scripts else ():
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write(content)
            file.flush()
            status, said, errors = row.run(name, scripts[name], COPY=file.name)
            assert status == 1 and f"{file.name} is damaged or no copy" in errors and Path(file.name).read_text() == content, errors


def lose_a_cursor(server):
    """A cursor of `/changes.php` whose entries a restore has taken away."""
    backups = f"{server.directory.name}/backups"
    server.run("backup", backups)
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/customers.php", b'{"name": "Lost"}', headers)).close()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/changes.php?cursor=now", headers=headers)) as answer:
        cursor = json.load(answer)["next_cursor"]
    server.run("restore", backups, "acme", "--force")
    return cursor


ROWS = [
    an_unset_value, an_unset_version, an_old_version, a_misspelt_field, not_a_number, a_date, a_moment, a_redirect, a_page_in_place_of_an_answer, a_lost_connection, a_429,
    the_end_of_a_window, a_503, patience_that_ends, no_answer, a_fault_that_stays, a_conflict,
    a_trailing_slash, no_address, an_own_idempotency_key, the_reason_of_an_error, a_record_that_may_exist, bulk, all_pages, follow, mirror,
    a_copy_that_would_lack_changes, a_damaged_copy,
]

with Server(sys.argv[1]) as server:
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    server.lost_cursor = lose_a_cursor(server)
    row = Row(server, proxy)
    for check in ROWS:
        if len(sys.argv) > 2 and check.__name__ not in sys.argv[2:]:
            continue
        for name in BEGIN:
            try:
                check(row, name)
            except AssertionError as fault:
                sys.exit(f"{check.__name__.replace('_', ' ')}: {name}: {fault}")
        print("as in the table:", check.__name__.replace("_", " "))
    proxy.shutdown()
