"""A client for TenantDesk in one file, with Python's standard library alone. Copy it.

    from tenantdesk import Desk

    desk = Desk("https://desk.example", "tdk_…")
    shop = desk.create("customers", name="Shop", city="Berlin")
    desk.update("customers", shop["id"], status="inactive")
    desk.create_or_update("hardware", "serial_number", serial_number="PF-3X9Q7", name="Eva's laptop")
    for customer in desk.all("customers", status="inactive", sort="-created_at"):
        print(customer["name"])
    desk.change("customers", shop["id"], lambda record: {"notes": (record["notes"] or "") + "Called."})
    for entries, cursor in desk.follow():
        print(entries)
"""

import datetime
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


class DeskError(Exception):
    """An answer that is an error. With `validation_failed`, `fields` has the error of each field. If an operation of a batch
    failed, `operation` is its number. If a record should be new and is not, `id` is its id."""

    def __init__(self, status, code, message, fields=None, request_id=None, operation=None, id=None):
        super().__init__(f"{status} {code}: {message} (request {request_id})")
        self.status, self.code, self.message = status, code, message
        self.fields, self.request_id, self.operation, self.id = fields or {}, request_id, operation, id


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would turn POST into GET, or send the key to another server."""

    def redirect_request(self, *_):
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class Desk:
    """One tenant's records. A request is sent at most `tries` times; a change takes effect once."""

    def __init__(self, url, key, tries=5, timeout=70):
        self.url, self.key, self.tries, self.timeout = url.rstrip("/"), key, tries, timeout

    def create(self, resource, **fields):
        return self._call("POST", resource, body=fields)

    def create_or_update(self, resource, by, **fields):
        """Creates a record, or changes the record with the same value in the field `by`. Sends one request."""
        return self._call("POST", resource, {"update_by": by}, fields)

    def create_if_absent(self, resource, by, **fields):
        """Creates a record, unless one has the same value in the field `by`. Returns its id, and whether it is new."""
        try:
            return self._call("POST", resource, {"update_by": by}, fields, if_none_match="*")["id"], True
        except DeskError as error:
            if error.id is None:
                raise
            return error.id, False

    def get(self, resource, id):
        return self._call("GET", resource, {"id": id})

    def update(self, resource, id, if_match=None, **fields):
        """Changes fields. `if_match` is a record's `etag`: if the record was changed since, the error is 412 `precondition_failed`."""
        return self._call("PUT", resource, {"id": id}, fields, if_match)

    def delete(self, resource, id, if_match=None):
        self._call("DELETE", resource, {"id": id}, if_match=if_match)

    def change(self, resource, id, edit, tries=20):
        """Updates the fields that `edit(record)` returns; reads and edits again if the record was changed meanwhile."""
        for tries_left in reversed(range(tries)):
            record = self.get(resource, id)
            try:
                return self.update(resource, id, if_match=record["etag"], **edit(record))
            except DeskError as error:
                if error.status != 412 or not tries_left:
                    raise

    def batch(self, operations):
        """Up to 100 operations, of which all take effect or none: {"method", "path", "body", "if_match"} each. Returns their results."""
        return self._call("POST", "batch", body={"operations": operations})["results"]

    def page(self, resource, **parameters):
        """One page: {"data": […], "next_cursor": …}. `city=None` finds the records without a city."""
        return self._call("GET", resource, parameters)

    def all(self, resource, **parameters):
        """Yields every matching record once, page by page."""
        parameters = {"limit": 200, **parameters}
        while True:
            page = self.page(resource, **parameters)
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            parameters["cursor"] = page["next_cursor"]

    def follow(self, cursor="now", wait=5, **parameters):
        """Yields (entries of the change log, cursor) without an end; the entries may be empty. Handle the entries, store the
        cursor, and pass it to the next call. On the first call, store the first cursor and then read the lists. Do the same
        after an error 410 `changes_gone`. `wait` is in seconds."""
        while True:
            page = self._call("GET", "changes", {"limit": 200, **parameters, "cursor": cursor})
            cursor = page["next_cursor"]
            yield page["data"], cursor
            if not page["more"]:
                time.sleep(wait)

    def _call(self, method, resource, parameters=None, body=None, if_match=None, if_none_match=None):
        texts = {name: value if isinstance(value, str) else _json(value).strip('"') for name, value in (parameters or {}).items()}
        query = "?" + urllib.parse.urlencode(texts) if texts else ""
        headers = {"Authorization": f"Bearer {self.key}"}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", _json(body).encode()
            # A misspelt field is an error.
            headers["Prefer"] = "handling=strict"
        if method != "GET":
            # The same for every try, so that the change takes effect once.
            headers["Idempotency-Key"] = str(uuid.uuid4())
        if if_match is not None:
            headers["If-Match"] = if_match
        if if_none_match is not None:
            headers["If-None-Match"] = if_none_match
        request = urllib.request.Request(f"{self.url}/{resource}.php{query}", data, headers, method=method)
        for tries_left in reversed(range(self.tries)):
            try:
                with _opener.open(request, timeout=self.timeout) as answer:
                    text = answer.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as answer:
                if answer.code not in (429, 502, 503, 504) or not tries_left:
                    raise _error(answer) from None
                # A proxy may send a date.
                wait = answer.headers.get("Retry-After", "")
                time.sleep(int(wait) if wait.isdecimal() else 1)
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError):
                if not tries_left:
                    raise
                time.sleep(1)


def _json(value):
    """A date becomes a text. What JSON cannot say, such as NaN, is an error."""
    return json.dumps(value, allow_nan=False, default=_date)


def _date(value):
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"JSON cannot say {value!r}")


def _error(answer):
    request_id = answer.headers.get("X-Request-Id")
    if answer.code < 400:
        message = f"The server redirects to {answer.headers.get('Location')}. Use this address."
        return DeskError(answer.code, "redirected", message, request_id=request_id)
    try:
        document = json.loads(answer.read())
        error = document["error"]
    except (ValueError, KeyError, TypeError):
        # The response of a proxy, for example, has no envelope.
        return DeskError(answer.code, "unknown", answer.reason, request_id=request_id)
    fields, operation = document.get("errors"), document.get("operation")
    return DeskError(answer.code, error["code"], error["message"], fields, request_id, operation, error.get("id"))
