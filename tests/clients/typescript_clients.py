"""A TypeScript client, generated from the document that the server serves, compiled strictly and run. It may not warn. Before it,
redocly and spectral read the document.

Needs `npm install` in the directory typescript/.

    python typescript_clients.py BINARY
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from service import Server

DIRECTORY = Path(__file__).resolve().parent / "typescript"
CLIENTS = Path(__file__).resolve().parents[2] / "examples/clients"


def start(*command, **environment):
    return subprocess.Popen(command, cwd=DIRECTORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **environment})


def ended(process):
    output, _ = process.communicate()
    # redocly also warns of the age of Node.js.
    warns = "You have" if "redocly" in str(process.args[0]) else "warn"
    if process.returncode != 0 or warns in output:
        sys.exit(f"{process.args}\n{output}")
    return output


with Server(sys.argv[1]) as server:
    for name in ("generated", "compiled"):
        shutil.rmtree(DIRECTORY / name, ignore_errors=True)
    (DIRECTORY / "generated").mkdir()
    for file in ("tenantdesk.mjs", "tenantdesk.d.mts"):
        shutil.copy(CLIENTS / file, DIRECTORY / "generated")
    document = DIRECTORY / "generated" / "openapi.json"
    document.write_text(server.run("openapi"))
    tools = DIRECTORY / "node_modules" / ".bin"
    for command in (
        ("redocly", "lint", document),
        ("spectral", "lint", "--fail-severity=hint", "--ruleset", "spectral.yaml", document),
        ("openapi-typescript", f"{server.url}/openapi.json", "--output", "generated/schema.d.ts"),
        ("tsc", "--project", "."),
    ):
        ended(start(tools / command[0], *command[1:], REDOCLY_TELEMETRY="off"))
    environment = {"TENANTDESK_URL": server.url, "TENANTDESK_KEY": server.key}
    print(ended(start("node", "compiled/life.js", **environment)), end="")
