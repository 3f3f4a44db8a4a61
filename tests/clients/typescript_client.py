"""A TypeScript client, its types made by openapi-typescript from the document that the server serves, compiled strictly and
run through the whole life of a customer, an employee and a piece of hardware.

Needs `npm install` in the directory typescript/.

    python typescript_client.py BINARY
"""

import os
import subprocess
import sys
from pathlib import Path

from service import Server

DIRECTORY = Path(__file__).resolve().parent / "typescript"


def node(*arguments, **environment):
    subprocess.run(["node", *arguments], cwd=DIRECTORY, check=True, env={**os.environ, **environment})


with Server(sys.argv[1]) as server:
    # A field with a default may still be left out of a body.
    node("node_modules/openapi-typescript/bin/cli.js", f"{server.url}/openapi.json", "--default-non-nullable=false",
         "--output", "generated/schema.d.ts")
    node("node_modules/typescript/bin/tsc", "--project", ".")
    node("generated/life.js", TENANTDESK_URL=server.url, TENANTDESK_KEY=server.key)
