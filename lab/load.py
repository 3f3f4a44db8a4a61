"""Creates customers on LOAD_HOST, this machine unless set, until it is ended, and prints `NAME TENANT TIME` for each that was acknowledged.

Arguments: a prefix for the names, and one `TENANT=KEY` for each tenant. A request without a response is repeated with the same
Idempotency-Key, as a client would. Times are in seconds.
"""

import http.client
import json
import os
import sys
import threading
import time
import uuid

HOST, PORT = os.environ.get("LOAD_HOST", "127.0.0.1"), 8080


def create(connection, key, name, idempotency_key):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Idempotency-Key": idempotency_key}
    connection.request("POST", "/customers.php", json.dumps({"name": name}), headers)
    response = connection.getresponse()
    response.read()
    return response.status


def write(prefix, tenant, key):
    connection = http.client.HTTPConnection(HOST, PORT, timeout=10)
    number, idempotency_key = 0, str(uuid.uuid4())
    while True:
        name = f"{prefix}-{tenant}-{number}"
        try:
            status = create(connection, key, name, idempotency_key)
        except (OSError, http.client.HTTPException):
            connection.close()
            time.sleep(0.02)
            continue
        if status == 201:
            sys.stdout.write(f"{name} {tenant} {time.monotonic()}\n")
            sys.stdout.flush()
            number, idempotency_key = number + 1, str(uuid.uuid4())
        elif status < 500:
            sys.stderr.write(f"{name}: status {status}\n")
            os._exit(1)


for argument in sys.argv[2:]:
    threading.Thread(target=write, args=(sys.argv[1], *argument.split("=", 1))).start()
