"""A client for TenantDesk in one file, with the standard library of Python 3.8 or newer. Copy it.

    from tenantdesk import Desk

    desk = Desk("https://desk.example", "tdk_…")
    shop = desk.create("customers", name="Shop", city="Berlin")
    desk.update("customers", shop["id"], status="inactive")
    desk.create_or_update("hardware", "serial_number", serial_number="PF-3X9Q7", name="Eva's laptop")
    for customer in desk.all("customers", status="inactive", sort="-created_at"):
        print(customer["name"])
    desk.change("customers", shop["id"], lambda record: {"notes": (record["notes"] or "") + "Called."})
    desk.bulk({"method": "DELETE", "path": f"/hardware.php?id={id}"} for id in [7, 8, 9])
    copy = desk.mirror("desk.json")
    print(len(copy["hardware"]), "devices")
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import random
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

Record = Dict[str, Any]
RESOURCES = ("customers", "employees", "hardware")
# A server that restarts or is upgraded answers again within this time.
PATIENCE = 120.0


class DeskError(Exception):
    """An answer that is no success, or no answer: then `status` is 0 and `code` is `no_answer`. `fields` has the error of each
    invalid field. If operations of a batch failed, `operation` is the number of the first one, and `operations` has all that are
    known. The text of the exception has them, too. If a record should be new and is not, `id` is its id."""

    def __init__(
        self, status: int, code: str, message: str, request_id: Optional[str] = None, document: Optional[Mapping[str, Any]] = None
    ) -> None:
        document = document or {}
        self.status, self.code, self.message, self.request_id = status, code, message, request_id
        self.fields: Dict[str, Any] = document.get("errors") or {}
        self.operation: Optional[int] = document.get("operation")
        self.operations: List[Dict[str, Any]] = document.get("operations") or []
        self.id: Optional[int] = document.get("error", {}).get("id")
        super().__init__(f"{status} {code}: {message} (request {request_id})" + "".join(f"\n  {fault}" for fault in self._faults()))

    def _faults(self) -> List[str]:
        """One line for each fault, if there are several. The message has the first."""
        operations = self.operations or [{"operation": self.operation, "errors": self.fields}]
        faults = []
        for failed in operations:
            place = "" if failed["operation"] is None else f"operation {failed['operation']}: "
            errors = failed.get("errors") or {}
            faults += [f"{place}{field}: {error['message']}" for field, error in errors.items()]
            if not errors and "error" in failed:
                faults.append(f"{place}{failed['error']['message']}")
        return faults if len(faults) > 1 else []


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would turn POST into GET, or send the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class Desk:
    """One tenant's records. A request without an answer, or with 429, 502, 503 or 504, is repeated for `patience` seconds in all,
    with doubled pauses. Each wait of a try takes `timeout` seconds at most. A change takes effect once: each has an idempotency key. Pass your
    own `idempotency_key` if your program may be killed and repeats the same change within 24 hours."""

    def __init__(self, url: str, key: str, patience: float = PATIENCE, timeout: float = 70) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"The address must begin with https:// or http://, but it is {url!r}.")
        self.url, self.key, self.patience, self.timeout = url.rstrip("/"), key, patience, timeout

    def create(self, resource: str, *, idempotency_key: Optional[str] = None, **fields: Any) -> Record:
        return self._record("POST", resource, body=fields, idempotency_key=idempotency_key)

    def create_or_update(self, resource: str, by: str, *, idempotency_key: Optional[str] = None, **fields: Any) -> Record:
        """Creates a record, or changes the record with the same value in the field `by`. Sends one request."""
        return self._record("POST", resource, {"update_by": by}, fields, idempotency_key=idempotency_key)

    def create_if_absent(self, resource: str, by: str, *, idempotency_key: Optional[str] = None, **fields: Any) -> Tuple[int, bool]:
        """Creates a record, unless one has the same value in the field `by`. Returns its id, and whether it is new."""
        try:
            parameters = {"update_by": by}
            return self._record("POST", resource, parameters, fields, idempotency_key=idempotency_key, if_none_match="*")["id"], True
        except DeskError as error:
            if error.id is None:
                raise
            return error.id, False

    def get(self, resource: str, id: int, **parameters: Any) -> Record:
        """The record. `include="employee,customer"` adds the records to which it belongs."""
        return self._record("GET", resource, {"id": id, **parameters})

    def update(
        self, resource: str, id: int, *, if_match: Optional[str] = "", idempotency_key: Optional[str] = None, **fields: Any
    ) -> Record:
        """Changes fields. `if_match` is a record's `etag`: if the record was changed since, the error is 412 `precondition_failed`."""
        return self._record("PUT", resource, {"id": id}, fields, if_match, idempotency_key)

    def delete(self, resource: str, id: int, *, if_match: Optional[str] = "", idempotency_key: Optional[str] = None) -> None:
        self._call("DELETE", resource, {"id": id}, None, if_match, idempotency_key)

    def change(self, resource: str, id: int, edit: Callable[[Record], Mapping[str, Any]]) -> Record:
        """Updates the fields that `edit(record)` returns. If the record was changed meanwhile, reads it and edits again."""
        pause = 0.01
        while True:
            record = self.get(resource, id)
            try:
                return self.update(resource, id, if_match=record["etag"], **edit(record))
            except DeskError as error:
                if error.status != 412:
                    raise
            # Random, so that many writers do not meet again.
            time.sleep(random.uniform(0, pause))
            pause = min(2 * pause, 1.0)

    def batch(self, operations: Sequence[Mapping[str, Any]], *, idempotency_key: Optional[str] = None) -> List[Record]:
        """Up to 100 operations, of which all take effect or none. Returns their results. Each operation is a mapping with "method" and
        "path", and perhaps "body", "if_match" or "if_none_match"."""
        body = {"operations": list(operations)}
        results: List[Record] = self._record("POST", "batch", body=body, idempotency_key=idempotency_key)["results"]
        return results

    def bulk(self, operations: Iterable[Mapping[str, Any]], *, idempotency_key: Optional[str] = None) -> List[Record]:
        """Any number of operations, in batches of at most 100 and 900 kB. If one fails, its batch and the later ones have no effect,
        and the error's `operation` counts from the first operation of all. An operation may not refer to a result of another batch."""
        base = idempotency_key or str(uuid.uuid4())
        results: List[Record] = []
        for batch in _batches(operations):
            key = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{base} {len(results)}"))
            try:
                results += self.batch(batch, idempotency_key=key)
            except DeskError as error:
                raise _moved(error, len(results)) from None
        return results

    def page(self, resource: str, /, **parameters: Any) -> Record:
        """One page: {"data": […], "next_cursor": …}. `city=None` finds the records without a city."""
        return self._record("GET", resource, parameters)

    def all(self, resource: str, /, **parameters: Any) -> Iterator[Record]:
        """Yields every matching record once, page by page."""
        parameters = {"limit": 200, **parameters}
        while True:
            page = self.page(resource, **parameters)
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            parameters["cursor"] = page["next_cursor"]

    def follow(self, cursor: str = "now", wait: float = 5, **parameters: Any) -> Iterator[Tuple[List[Record], str]]:
        """Yields (entries of the change log, cursor) without an end; the entries may be empty. Handle the entries, store the
        cursor, and pass it to the next call. On the first call, store the first cursor and then read the lists. Do the same
        after an error 410 `changes_gone`. `wait` is in seconds."""
        while True:
            page = self.page("changes", **{"limit": 200, **parameters, "cursor": cursor})
            cursor = page["next_cursor"]
            yield page["data"], cursor
            if not page["more"]:
                time.sleep(wait)

    def mirror(self, path: str, resources: Sequence[str] = RESOURCES) -> Dict[str, Dict[int, Record]]:
        """Brings the copy of all records in the JSON file `path` up to date, and returns it: `copy["hardware"][12]` is a device. The
        first call reads everything, later ones only what changed. The key needs the read scopes of `resources`."""
        # The change log leaves out what the key may not read, and its cursor never comes back to it.
        scopes = self.page("whoami")["key"]["scopes"]
        missing = [f"{resource}:read" for resource in resources if f"{resource}:read" not in scopes]
        if missing:
            raise DeskError(403, "insufficient_scope", f"The copy would lack changes. Use a key with {', '.join(missing)}.")
        cursor, copy = _stored(path, resources)
        while True:
            if cursor is None:
                # The cursor comes first, so that a change during the reads is an entry after it.
                cursor = self.page("changes", cursor="now")["next_cursor"]
                copy = {resource: {record["id"]: record for record in self.all(resource)} for resource in resources}
            try:
                page = self.page("changes", cursor=cursor, limit=200)
            except DeskError as error:
                if error.code != "changes_gone":
                    raise
                cursor = None
                continue
            for entry in page["data"]:
                records = copy.get(entry["resource"], {})
                if entry["record"] is None:
                    records.pop(entry["id"], None)
                else:
                    records[entry["id"]] = entry["record"]
            cursor = page["next_cursor"]
            if not page["more"]:
                break
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"cursor": cursor, "copy": copy}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)
        return copy

    def _record(self, *arguments: Any, **options: Any) -> Record:
        answer: Record = self._call(*arguments, **options)
        return answer

    def _call(
        self, method: str, resource: str, parameters: Optional[Mapping[str, Any]] = None, body: Optional[Mapping[str, Any]] = None,
        if_match: Optional[str] = "", idempotency_key: Optional[str] = None, if_none_match: Optional[str] = None,
    ) -> Any:
        texts = {name: _text(value) for name, value in (parameters or {}).items()}
        query = "?" + urllib.parse.urlencode(texts) if texts else ""
        headers = {"Authorization": f"Bearer {self.key}"}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", _json(body).encode()
            # A misspelt field is an error.
            headers["Prefer"] = "handling=strict"
        if method != "GET":
            # The same for every try, so that the change takes effect once.
            headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
        if if_match is None:
            # Without a version, the change would overwrite any.
            raise ValueError("if_match is None. Pass an etag, or leave if_match out.")
        if if_match:
            headers["If-Match"] = if_match
        if if_none_match is not None:
            headers["If-None-Match"] = if_none_match
        request = urllib.request.Request(f"{self.url}/{resource}.php{query}", data, headers, method=method)
        end, pause = time.monotonic() + self.patience, 1.0
        while True:
            left = max(end - time.monotonic(), 1.0)
            try:
                with _opener.open(request, timeout=min(self.timeout, left)) as answer:
                    return _document(answer.status, answer.read(), answer.headers)
            except urllib.error.HTTPError as answer:
                wait = max(_asked(answer), random.uniform(pause / 2, pause))
                if answer.code not in (429, 502, 503, 504) or time.monotonic() + wait > end:
                    _fail(answer.code, answer.read(), answer.headers)
            except (OSError, http.client.HTTPException) as error:
                wait = random.uniform(pause / 2, pause)
                if _lasts(error) or time.monotonic() + wait > end:
                    raise DeskError(0, "no_answer", f"There is no answer from {self.url}: {error}") from error
            time.sleep(wait)
            pause = min(2 * pause, 30.0)


def _asked(answer: urllib.error.HTTPError) -> float:
    """The seconds after which the server wants the repeat."""
    after, reset = answer.headers.get("Retry-After", ""), answer.headers.get("X-RateLimit-Reset", "")
    # A proxy may send a date.
    wait = float(after) if after.isdecimal() else 0.0
    if answer.code == 429 and reset.isdecimal():
        wait = min(wait, float(reset) - time.time())
    return wait


def _lasts(error: Exception) -> bool:
    """Whether a repeat meets the same fault: a certificate that is not valid, a port without TLS, or no address."""
    cause = getattr(error, "reason", error)
    # The end of a connection, as at a restart, is an error of TLS, too.
    is_end = isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
    return isinstance(cause, http.client.InvalidURL) or isinstance(cause, ssl.SSLError) and not is_end


def _text(value: Any) -> str:
    """A value in a query."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else _json(value).strip('"')


def _json(value: Any) -> str:
    """A date or a moment becomes a text. What JSON cannot say, such as NaN, is an error."""
    return json.dumps(value, allow_nan=False, default=_date)


def _date(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        # Without a time zone, the moment is in the local time.
        return value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"JSON cannot say {value!r}")


def _document(status: int, text: bytes, headers: Any) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        # A page of a proxy or of a sign-in, for example.
        raise DeskError(status, "unknown", "The answer is not JSON. Check the address.", headers.get("X-Request-Id")) from None


def _fail(status: int, text: bytes, headers: Any) -> NoReturn:
    request_id = headers.get("X-Request-Id")
    if status < 400:
        message = f"The server redirects to {headers.get('Location')}. Use this address."
        raise DeskError(status, "redirected", message, request_id) from None
    try:
        document = json.loads(text)
        code, message = document["error"]["code"], document["error"]["message"]
    except (ValueError, KeyError, TypeError):
        # The response of a proxy, for example, has no envelope.
        raise DeskError(status, "unknown", http.client.responses.get(status, "no answer in JSON"), request_id) from None
    raise DeskError(status, code, message, request_id, document) from None


def _batches(operations: Iterable[Mapping[str, Any]]) -> Iterator[List[Mapping[str, Any]]]:
    batch: List[Mapping[str, Any]] = []
    size = 0
    for operation in operations:
        length = len(_json(operation))
        if batch and (len(batch) == 100 or size + length > 900_000):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += length
    if batch:
        yield batch


def _moved(error: DeskError, start: int) -> DeskError:
    """An error of a batch whose first operation has the number `start`."""
    document = {
        "errors": error.fields,
        "operation": None if error.operation is None else start + error.operation,
        "operations": [{**failed, "operation": start + failed["operation"]} for failed in error.operations],
    }
    message = f"In the batch that begins with operation {start}: {error.message}" if start else error.message
    return DeskError(error.status, error.code, message, error.request_id, document)


def _stored(path: str, resources: Sequence[str]) -> Tuple[Optional[str], Dict[str, Dict[int, Record]]]:
    """The cursor and the copy of a file of `mirror`. No cursor if there is no file, or if it lacks a resource."""
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        cursor, copy = stored["cursor"], stored["copy"]
        copy = {resource: {int(id): record for id, record in records.items()} for resource, records in copy.items()}
    except FileNotFoundError:
        return None, {}
    except (ValueError, KeyError, TypeError, AttributeError):
        # It may be another file of the user, so it stays.
        raise ValueError(f"{path} is damaged or no copy. Remove it, and the next call reads everything.") from None
    return (cursor, copy) if set(copy) == set(resources) else (None, {})
