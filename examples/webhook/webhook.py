#!/usr/bin/env python3
"""Posts each change of a tenant to an address as a signed message, in order and at least once.

It follows /changes.php and signs as Standard Webhooks 1.0 says (https://www.standardwebhooks.com). Settings are environment
variables; README.md describes them. It needs Python 3.9 on Linux and nothing else.
"""

import base64
import email.utils
import hashlib
import hmac
import http.client
import json
import os
import random
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timezone

STOP = {signal.SIGTERM, signal.SIGINT}
GONE = "Changes were missed. Read the lists again; the changes from here on follow."


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: urllib would follow it with a GET and drop the message."""

    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(NoRedirect)


class State:
    """The position of the follower, in a file. `cursor` is the cursor of the page. `seq` is the last delivered entry of the page.
    `gone` is the id of an undelivered message about missed changes. Every message's id begins with `source`."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.values = {"source": uuid.uuid4().hex, "cursor": None, "seq": 0, "gone": None}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                self.values.update(json.load(file))

    def __getitem__(self, name):
        return self.values[name]

    def save(self, **values):
        """Replaces the file atomically, so that it holds the old state or the new one after a crash."""
        self.values.update(values)
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.values, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Follower:
    def __init__(self, settings):
        self.changes = address(settings, "TENANTDESK_URL").rstrip("/") + "/changes.php"
        self.key = settings["TENANTDESK_KEY"]
        self.receiver = address(settings, "WEBHOOK_URL")
        # More than one while receivers change from one secret to the next: each message is signed with all of them.
        self.secrets = [decode_secret(secret) for secret in settings["WEBHOOK_SECRET"].split() or [""]]
        self.state = State(settings["WEBHOOK_STATE"])
        self.interval = float(settings.get("WEBHOOK_INTERVAL", 5))
        self.timeout = float(settings.get("WEBHOOK_TIMEOUT", 20))
        self.first_wait = float(settings.get("WEBHOOK_FIRST_WAIT", 1))
        self.longest_wait = float(settings.get("WEBHOOK_LONGEST_WAIT", 300))

    def run(self):
        if self.state["cursor"] is None:
            self.state.save(cursor=self.page("now")["next_cursor"])
        while True:
            if self.state["gone"]:
                self.post(self.state["gone"], "changes.gone", timestamp(), {"message": GONE})
                self.state.save(gone=None)
            page = self.page(self.state["cursor"])
            if page is None:
                # The cursor is stored before the message is posted. So a change that comes after the receiver read the lists is sent.
                now = self.page("now")["next_cursor"]
                self.state.save(cursor=now, seq=0, gone=f"msg_{uuid.uuid4().hex}")
                continue
            self.deliver(page)
            pause(0 if page["more"] else self.interval)

    def deliver(self, page):
        for entry in page["data"]:
            if entry["seq"] > self.state["seq"]:
                name = f"msg_{self.state['source']}_{entry['seq']}"
                self.post(name, f"{entry['resource']}.{entry['action']}", entry["at"], entry)
                self.state.save(seq=entry["seq"])
        if page["next_cursor"] != self.state["cursor"]:
            self.state.save(cursor=page["next_cursor"])

    def page(self, cursor):
        """Returns a page of the change log, or None if the cursor is gone."""
        query = urllib.parse.urlencode({"cursor": cursor, "limit": 200})
        request = urllib.request.Request(f"{self.changes}?{query}", headers={"Authorization": f"Bearer {self.key}"})

        def ask():
            try:
                with OPENER.open(request, timeout=self.timeout) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 410 or cursor == "now":
                    raise
                return None

        return self.insist("TenantDesk", ask)

    def post(self, name, kind, at, data):
        """Returns once the receiver has taken the message."""
        body = json.dumps({"type": kind, "timestamp": at, "data": data}, separators=(",", ":"), ensure_ascii=False).encode()

        def send():
            now = int(time.time())
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "tenantdesk-webhook",
                "webhook-id": name,
                "webhook-timestamp": str(now),
                "webhook-signature": " ".join(sign(secret, name, now, body) for secret in self.secrets),
            }
            OPENER.open(urllib.request.Request(self.receiver, body, headers), timeout=self.timeout).close()

        self.insist("the receiver", send)

    def insist(self, whom, call):
        """Calls until it succeeds. The waits double, with jitter, and are never shorter than `Retry-After`."""
        wait = self.first_wait
        while True:
            pause(0)
            try:
                return call()
            except (OSError, http.client.HTTPException, ValueError) as error:
                seconds = max(random.uniform(wait / 2, wait), retry_after(error))
                print(f"{whom}: {describe(error)}; next try in {seconds:.1f} s", file=sys.stderr, flush=True)
            pause(seconds)
            wait = min(2 * wait, self.longest_wait)


def address(settings, name):
    if not settings[name].startswith(("https://", "http://")):
        raise ValueError(f"{name} is no address with https:// or http://")
    return settings[name]


def decode_secret(secret):
    try:
        decoded = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        decoded = b""
    if len(decoded) < 24:
        raise ValueError("WEBHOOK_SECRET is not whsec_ with at least 24 bytes in base64")
    return decoded


def sign(secret, name, seconds, body):
    digest = hmac.new(secret, f"{name}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def timestamp():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def retry_after(error):
    """The seconds in `Retry-After` (RFC 9110 section 10.2.3), at most an hour, 0 without it."""
    value = getattr(error, "headers", None) and error.headers.get("Retry-After") or "0"
    try:
        seconds = int(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            seconds = 0
    return min(seconds, 3600)


def describe(error):
    """The reason without addresses, which may hold secrets. TenantDesk's errors have a code and a message."""
    try:
        document = json.loads(error.read(10_000))["error"]
        reason = f"{error.code} {document['code']}: {document['message']}"
    except (AttributeError, KeyError, TypeError, ValueError, OSError, http.client.HTTPException):
        reason = str(error) or type(error).__name__
    return "".join(character if character.isprintable() else "?" for character in reason)


def pause(seconds):
    """Waits, and ends the program once a signal asks for it. The signals are blocked, so no request and no write of the state
    is interrupted."""
    if signal.sigtimedwait(STOP, seconds):
        sys.exit(0)


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        follower = Follower(os.environ)
    except KeyError as error:
        sys.exit(f"webhook.py: set {error.args[0]}; README.md describes the settings")
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"webhook.py: {error}")
    follower.run()


if __name__ == "__main__":
    main()
