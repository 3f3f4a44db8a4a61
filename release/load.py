"""Creates customers on the test machine until it is ended, and prints `NAME TENANT TIME` for each that was acknowledged.

Arguments: a prefix for the names, and one `TENANT=KEY` for each tenant. A request without a response is repeated with the same
Idempotency-Key, as a client would. Times are in seconds.
"""

import http.client
import json
import sys
import threading
import time

HOST, PORT = "127.0.0.1", 8080


def create(connection, key, name):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Idempotency-Key": name}
    connection.request("POST", "/customers.php", json.dumps({"name": name}), headers)
    response = connection.getresponse()
    response.read()
    return response.status


def write(prefix, tenant, key):
    connection = http.client.HTTPConnection(HOST, PORT, timeout=10)
    number = 0
    while True:
        name = f"{prefix}-{tenant}-{number}"
        try:
            status = create(connection, key, name)
        except (OSError, http.client.HTTPException):
            connection.close()
            time.sleep(0.02)
            continue
        if status == 201:
            sys.stdout.write(f"{name} {tenant} {time.monotonic()}\n")
            sys.stdout.flush()
            number += 1
        elif status < 500:
            sys.exit(f"{name}: status {status}")


for argument in sys.argv[2:]:
    threading.Thread(target=write, args=(sys.argv[1], *argument.split("=", 1))).start()
