"""Creates customers from one client at several services in turn, and prints the median and the 99th percentile of their times.

Arguments: the number of customers, and one `ADDRESS:PORT=KEY` for each service. Times are in milliseconds.
"""

import http.client
import json
import statistics
import sys
import time


def create(connection, key, number):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    began = time.monotonic()
    connection.request("POST", "/customers.php", json.dumps({"name": f"latency-{number}"}), headers)
    response = connection.getresponse()
    response.read()
    if response.status != 201:
        sys.exit(f"status {response.status}")
    return (time.monotonic() - began) * 1000


services = [argument.split("=", 1) for argument in sys.argv[2:]]
connections = [(http.client.HTTPConnection(address, timeout=60), key) for address, key in services]
times = [[create(connection, key, number) for connection, key in connections] for number in range(int(sys.argv[1]))]
for (address, _), measured in zip(services, zip(*times)):
    print(f"{address}: median {statistics.median(measured):.1f}, p99 {statistics.quantiles(measured, n=100)[98]:.1f}")
