"""Changes customers as several clients do, until the power goes, and says afterwards what became of their changes.

    changes.py new STATE PORT TENANT=KEY…
    changes.py load STATE SEED
    changes.py verify STATE IMPORT…

STATE is a file that outlives the power cuts. `load` ends when the service is gone. `verify` compares the records and the change
log with what was acknowledged, and repeats the requests that had no answer, and some that had one, with their idempotency keys.
Each IMPORT is the name that all rows of an acknowledged import have. It prints what it found, and ends with 1 where a promise is
broken.
"""

import http.client
import json
import pickle
import random
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path

CLIENTS, REPEATED, IMPORTED_ROWS = 3, 5, 10_000


class Service:
    def __init__(self, port, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def send(self, method, path, body=None, idempotency_key=None):
        """The status, the content, and whether it is a replay."""
        headers = self.headers | ({"Idempotency-Key": idempotency_key} if idempotency_key else {})
        while True:
            self.connection.request(method, path, body, headers)
            response = self.connection.getresponse()
            content = response.read()
            # During an import, other writers of the tenant get 503 after some seconds.
            if response.status != 503:
                return response.status, content, response.headers.get("Idempotent-Replayed") == "true"

    def pages(self, path, more):
        page = {"next_cursor": None}
        while True:
            status, content, _ = self.send("GET", path + (f"&cursor={page['next_cursor']}" if page["next_cursor"] else ""))
            if status != 200:
                sys.exit(f"GET {path}: {status} {content}")
            page = json.loads(content)
            yield page
            if not more(page):
                return

    def customers(self):
        pages = self.pages("/customers.php?limit=200", lambda page: page["next_cursor"])
        return {record["id"]: record["name"] for page in pages for record in page["data"]}

    def changes(self):
        return [entry for page in self.pages("/changes.php?limit=200", lambda page: page["more"]) for entry in page["data"]]


class Client:
    """Changes records of its own alone, so that it knows what they have to be."""

    def __init__(self, name):
        self.name, self.names = name, 0
        self.records, self.changes = {}, []
        self.pending, self.answered = None, []

    def new_name(self):
        self.names += 1
        return f"{self.name}-{self.names}"

    def operations(self, chance):
        """One operation, or those of a batch. No two concern the same record."""
        mine = chance.sample(list(self.records), min(8, len(self.records)))
        chosen = []
        for _ in range(chance.choice((1, 1, 2, 8))):
            method = chance.choice(("POST", "POST", "PUT", "DELETE")) if mine else "POST"
            chosen.append((method, None if method == "POST" else mine.pop(), None if method == "DELETE" else self.new_name()))
        return chosen

    def request(self, chance):
        """The operations, and the arguments of Service.send."""
        operations = self.operations(chance)
        single = [
            {"method": method, "path": "/customers.php" + (f"?id={id}" if id else "")} | ({"body": {"name": name}} if name else {})
            for method, id, name in operations
        ]
        key = str(uuid.uuid4())
        if len(single) > 1:
            return operations, ("POST", "/batch.php", json.dumps({"operations": single}), key)
        body = json.dumps(single[0]["body"]) if "body" in single[0] else None
        return operations, (single[0]["method"], single[0]["path"], body, key)

    def acknowledge(self, status, content):
        operations, arguments = self.pending
        if len(operations) > 1:
            results = [result["body"] for result in json.loads(content)["results"]]
        else:
            results = [json.loads(content) if content else None]
        for (method, id, name), record in zip(operations, results, strict=True):
            id = id or record["id"]
            # The form is that of `change_log`.
            self.changes.append((id, {"POST": "created", "PUT": "updated", "DELETE": "deleted"}[method], self.records.pop(id, None)))
            if name:
                self.records[id] = name
        self.answered = self.answered[-REPEATED:] + [(arguments, (status, content, True))]
        self.pending = None

    def run(self, service, chance):
        while True:
            self.pending = self.request(chance)
            try:
                status, content, _ = service.send(*self.pending[1])
            except (OSError, http.client.HTTPException):
                return
            if status >= 300:
                sys.stderr.write(f"{self.pending}: {status} {content}\n")
                return
            self.acknowledge(status, content)


class Tenant:
    def __init__(self, name, key):
        self.key, self.clients, self.imports = key, [Client(f"{name}-{n}") for n in range(CLIENTS)], set()

    def acknowledged(self):
        return Counter(change for client in self.clients for change in client.changes)

    def records(self):
        return {id: name for client in self.clients for id, name in client.records.items()}


def load(port, tenants, seed):
    threads = [
        threading.Thread(target=client.run, args=(Service(port, tenant.key), random.Random(f"{seed} {client.name}")))
        for tenant in tenants
        for client in tenant.clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def change_log(service):
    """How often there is each (id, action, former name), of the clients and of imports."""
    found = {"key": Counter(), "command": Counter()}
    for entry in service.changes():
        found[entry["by"]["kind"]][entry["id"], entry["action"], entry["before"] and entry["before"]["name"]] += 1
    return found["key"], found["command"].total()


def repeat(client, service):
    """The number of changes that had no answer, the number of those that had taken effect, and what is wrong."""
    wrong = [
        f"{arguments} has another answer"
        for arguments, answer in client.answered
        if service.send(*arguments) != answer
    ]
    if not client.pending:
        return 0, 0, wrong
    operations, arguments = client.pending
    status, content, replayed = service.send(*arguments)
    if status >= 300:
        return len(operations), 0, [*wrong, f"{arguments}: {status} {content}"]
    client.acknowledge(status, content)
    return len(operations), replayed * len(operations), wrong


def verify_records(tenant, records, imported):
    """What is wrong with the records, where the change log has that many entries of imports."""
    own = {id: name for id, name in records.items() if not name.startswith("import")}
    wrong = ["the records differ from the changes"] if own != tenant.records() else []
    rows = Counter(name for id, name in records.items() if id not in own)
    wrong += [f"{name} has {rows[name]} rows" for name in {*rows, *tenant.imports} if rows[name] != IMPORTED_ROWS]
    if imported != rows.total():
        wrong.append(f"the change log has {imported} imported rows, of {rows.total()}")
    # What is there once has to stay.
    tenant.imports |= set(rows)
    return wrong


def verify_tenant(tenant, service):
    """What was found, as numbers, and what is wrong."""
    acknowledged, (before, _) = tenant.acknowledged(), change_log(service)
    found = Counter(acknowledged=acknowledged.total(), lost=(acknowledged - before).total())
    if found["lost"]:
        return found, []
    results = [repeat(client, service) for client in tenant.clients]
    found["unanswered"], found["effective"] = sum(result[0] for result in results), sum(result[1] for result in results)
    wrong = [line for result in results for line in result[2]]
    if (before - acknowledged).total() != found["effective"]:
        wrong.append(f"{(before - acknowledged).total()} changes had no answer, repeats say {found['effective']}")
    acknowledged, (after, imported) = tenant.acknowledged(), change_log(service)
    found["lost"], found["doubled"] = (acknowledged - after).total(), (after - acknowledged).total()
    return found, wrong + verify_records(tenant, service.customers(), imported)


def verify(port, tenants):
    found, wrong = Counter(), []
    for tenant in tenants:
        numbers, faults = verify_tenant(tenant, Service(port, tenant.key))
        found += numbers
        wrong += faults
    print(
        f"acknowledged {found['acknowledged']}, lost {found['lost']}, doubled {found['doubled']},",
        f"without an answer {found['unanswered']}, of which {found['effective']} had taken effect,",
        f"imports {sum(len(tenant.imports) for tenant in tenants)}",
    )
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong or found["lost"] or found["doubled"])


command, state, *arguments = sys.argv[1:]
state = Path(state)
if command == "new":
    tenants = [Tenant(*argument.split("=", 1)) for argument in arguments[1:]]
    port, failed = int(arguments[0]), False
else:
    port, tenants = pickle.loads(state.read_bytes())
    if command == "load":
        failed = load(port, tenants, arguments[0])
    else:
        tenants[-1].imports |= set(arguments)
        failed = verify(port, tenants)
state.write_bytes(pickle.dumps((port, tenants)))
sys.exit(failed)
