"""The document that the binary prints is the one that it serves, and a valid one for openapi-spec-validator.

    python validate.py BINARY
"""

import json
import sys
import urllib.request

from service import Server
from openapi_spec_validator import OpenAPIV31SpecValidator

with Server(sys.argv[1]) as server:
    printed = json.loads(server.run("openapi"))
    for path in ("/openapi.json", "/v1/openapi.json"):
        with urllib.request.urlopen(server.url + path) as answer:
            assert json.load(answer) == printed, path
faults = [str(fault.message) for fault in OpenAPIV31SpecValidator(printed).iter_errors()]
sys.exit("\n".join(faults) if faults else print("document: ok"))
