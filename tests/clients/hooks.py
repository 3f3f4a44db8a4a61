"""What the contract says and JSON Schema cannot, told to Schemathesis: each hook has its reason beside it."""

import json
import unicodedata
import uuid

import schemathesis
from schemathesis.core.failures import Failure


REFERENCES = {"customer_id": "/customers.php", "employee_id": "/employees.php"}
INTEGERS = [*REFERENCES, "purchase_cost_cents"]
# The ids of the records that exist, by path.
LIVE = {path: [] for path in [*REFERENCES.values(), "/hardware.php"]}
# The present version of a record, by path and id.
VERSIONS = {}
# What a POST in a batch needs.
NEW = {
    "/customers.php": {"name": "Batch GmbH"},
    "/employees.php": {"email": "eva@batch.example"},
    "/hardware.php": {"name": "Laptop"},
}
# The last cursor of the journal.
CURSOR = ["now"]


@schemathesis.hook
def after_call(context, case, response):
    method = case.method.upper()
    if case.path == "/changes.php" and response.status_code == 200 and method == "GET":
        CURSOR[0] = json.loads(response.content)["next_cursor"]
    elif case.path == "/batch.php" and response.status_code == 200:
        results = json.loads(response.content)["results"]
        for operation, result in zip(case.body["operations"], results, strict=True):
            path, _, query = operation["path"].removeprefix("/v1").partition("?id=")
            record = result["body"]["id"] if result["body"] else int(query)
            remember(path, record, operation["method"], result["etag"])
    elif case.path in LIVE and method != "HEAD" and response.status_code in (200, 201, 204):
        body = json.loads(response.content) if response.content else {"id": (case.query or {}).get("id")}
        if "id" in body:
            remember(case.path, int(body["id"]), method, response.headers.get("etag", [None])[0])


def remember(path, record, method, etag):
    VERSIONS[path, record] = etag
    if method == "DELETE" and record in LIVE[path]:
        LIVE[path].remove(record)
    elif method == "POST" and record not in LIVE[path]:
        LIVE[path].append(record)


def within_64_bits(number):
    return max(-(2**63), min(number, 2**63 - 1))


def of_one_line(text):
    """The text with a letter in place of each hidden character, and of white space at the ends, which does not count."""
    shown = "".join("x" if is_hidden(character) else character for character in text)
    return shown if shown == shown.strip() else "x" + shown[1:-1] + "x" if len(shown) > 1 else "x"


def is_hidden(character):
    hidden = "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
    return unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in hidden


def is_positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    # A key that came with another request is refused for 24 hours, and generated keys repeat. A real client makes a new one.
    # (Where Schemathesis wants a good one it also sends `0`, against the pattern.)
    for name in list(case.headers or {}):
        if name.lower() == "idempotency-key" and (is_positive(case) or is_uuid(case.headers[name])):
            case.headers[name] = str(uuid.uuid4())
    if not is_positive(case):
        return
    # A pattern cannot name the hidden characters by an escape that every language has.
    if isinstance(case.body, dict):
        for texts in [case.body, case.body.get("custom")]:
            for name, value in list(texts.items()) if isinstance(texts, dict) else []:
                if isinstance(value, str) and name != "notes" and value.strip():
                    texts[name] = of_one_line(value)
    # To JSON Schema 12.0 is an integer; the service takes whole numbers only as whole numbers are written.
    if isinstance(case.body, dict):
        whole = {name: int(value) for name, value in case.body.items() if name in INTEGERS and isinstance(value, float)}
        case.body.update(whole)
        # The format int64 is no rule for Schemathesis.
        for name in INTEGERS:
            if isinstance(case.body.get(name), int):
                case.body[name] = within_64_bits(case.body[name])
    # Which records exist no schema can say. Most references lead to one that does, or little would ever be created.
    for field, path in REFERENCES.items():
        if isinstance(case.body, dict) and isinstance(case.body.get(field), int) and LIVE[path]:
            if case.body[field] not in LIVE[path]:
                case.body[field] = LIVE[path][-1]
    # The customer of a device with an employee is the employee's customer.
    if isinstance(case.body, dict) and case.body.get("employee_id") is not None:
        if case.path == "/hardware.php":
            case.body.pop("customer_id", None)
    # A strict request takes no unknown members, which the schema of a body allows.
    # The version of a record that `update_by` finds is not known before.
    for name in list(case.headers or {}):
        if name.lower() == "prefer":
            case.headers[name] = "handling=lenient"
        elif name.lower() == "if-match" and case.method.upper() == "POST":
            del case.headers[name]
    # The field that `update_by` names needs a value.
    if case.query and isinstance(case.body, dict) and not str(case.body.get(case.query.get("update_by")) or "").strip():
        case.query.pop("update_by", None)
    # What belongs to an operation depends on its method and its path. In the schema it would cost clients their types.
    if case.path == "/batch.php" and isinstance(case.body, dict):
        earlier = []
        for operation in case.body["operations"]:
            complete(operation, earlier)
            earlier.append(operation)
    if not case.query:
        return
    for name in INTEGERS:
        if isinstance(case.query.get(name), int):
            case.query[name] = within_64_bits(case.query[name])
    if case.path == "/changes.php":
        # An id is that of a record of a resource: OpenAPI 3.1 has no word for parameters that need each other.
        if "id" in case.query:
            case.query.setdefault("resource", "customers")
        # A cursor is what a page gave, or `now`; no made-up one is valid.
        if case.query.get("cursor", "now") != "now":
            case.query["cursor"] = CURSOR[0]
        return
    # Beside `id` no other parameter is known: OpenAPI 3.1 has no word for parameters that exclude each other.
    if "id" in case.query and len(case.query) > 1:
        if case.meta.phase.name.value == "stateful":
            case.query = {"id": case.query["id"]}
        else:
            case.query.pop("id")
    # A cursor is what a page gave; no made-up one is valid.
    case.query.pop("cursor", None)
    # A version is what the record has; no made-up one is valid.
    for name in list(case.headers or {}):
        if name.lower() == "if-match" and "id" in case.query:
            case.headers[name] = VERSIONS.get((case.path, case.query["id"])) or "*"


def complete(operation, earlier):
    """Gives an operation of a batch the id and the body that it needs. `earlier` are those before it."""
    path, _, query = operation["path"].removeprefix("/v1").partition("?")
    record = query.removeprefix("id=") if query.startswith("id=") else ""
    operation.pop("if_match", None)
    if operation["method"] == "POST":
        operation["path"] = operation["path"].partition("?")[0]
        operation["body"] = {**NEW[path], **references(path, earlier)}
        return
    deleted = [other["path"].removeprefix("/v1") for other in earlier if other["method"] == "DELETE"]
    if not record:
        operation["path"] = operation["path"].partition("?")[0]
        left = [known for known in LIVE[path] if f"{path}?id={known}" not in deleted]
        record = left[-1] if left else 1
        operation["path"] += f"?id={record}"
    if VERSIONS.get((path, int(record))) and not any(other["method"] != "POST" for other in earlier):
        operation["if_match"] = VERSIONS[path, int(record)]
    if operation["method"] == "PUT":
        operation["body"] = {"notes": "Changed by a batch."}


def references(path, earlier):
    """The reference that a new record of a path needs: the result of an operation before it, or a record that exists."""
    field = {"/employees.php": "customer_id", "/hardware.php": "employee_id"}.get(path)
    if field is None:
        return {}
    made = [
        number for number, other in enumerate(earlier)
        if other["method"] == "POST" and other["path"].removeprefix("/v1") == REFERENCES[field]
    ]
    if made:
        return {field: {"result": made[-1]}}
    return {field: (LIVE[REFERENCES[field]] or [1])[-1]}


def is_uuid(value):
    try:
        return str(uuid.UUID(value)) == value.lower()
    except (ValueError, AttributeError):
        return False


@schemathesis.hook
def filter_failure(context, failure: Failure, case, response) -> bool:
    name = type(failure).__name__
    # Where a message cannot be read at all, the status comes alone.
    if response.status_code == 431 and not response.content and "x-request-id" not in response.headers:
        return name not in ("MissingHeaders", "MissingContentType", "MalformedJson")
    # Which records and versions exist no schema can say; this is left where the hooks do not know it.
    unknown = ("customer_not_found", "employee_not_found", "precondition_failed")
    if name == "RejectedPositiveData" and code_of(response) in unknown:
        return False
    # Nor which customer a stored employee has.
    if name == "RejectedPositiveData" and case.path == "/hardware.php" and b"works at the customer" in response.content:
        return False
    # Nor what the body of an operation needs, and in which order operations can follow each other.
    if name == "RejectedPositiveData" and case.path == "/batch.php":
        return False
    # Without `update_by` a POST ignores `If-Match`.
    is_plain_post = case.method.upper() == "POST" and "update_by" not in (case.query or {})
    if name == "AcceptedNegativeData" and is_plain_post and any(it.lower() == "if-match" for it in case.headers or {}):
        return False
    # The document says what to send. The service also takes empty text for null and 1 and 0 for booleans, whatever the
    # field's type; with them in the schema, clients made from it would lose their types.
    if name == "AcceptedNegativeData" and isinstance(case.body, dict) and any(map(is_also_taken, case.body.items())):
        return False
    return True


def is_also_taken(member):
    name, value = member
    if name in ("is_active", "is_leased") and not isinstance(value, bool) and value in (0, 1):
        return True
    return isinstance(value, str) and not value.strip()


def code_of(response):
    try:
        return json.loads(response.content)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return None
