"""Three TypeScript clients, generated from the document that the server serves, compiled strictly and run. None may warn. Before
them, redocly and spectral read the document.

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


def address(server):
    return {"TENANTDESK_URL": server.url, "TENANTDESK_KEY": server.key, "SLOW_KEY": server.slow_key}


# Each client has a server of its own, because each counts its records and they run at once.
with Server(sys.argv[1]) as server, Server(sys.argv[1]) as for_hey, Server(sys.argv[1]) as for_orval:
    for name in ("generated", "compiled"):
        shutil.rmtree(DIRECTORY / name, ignore_errors=True)
    (DIRECTORY / "generated").mkdir()
    document = DIRECTORY / "generated" / "openapi.json"
    document.write_text(server.run("openapi"))
    tools = DIRECTORY / "node_modules" / ".bin"
    for command in (
        ("redocly", "lint", document),
        ("spectral", "lint", "--fail-severity=hint", "--ruleset", "spectral.yaml", document),
        ("openapi-typescript", f"{server.url}/openapi.json", "--output", "generated/schema.d.ts"),
        ("openapi-ts", "--input", document, "--output", "generated/hey", "--client", "@hey-api/client-fetch", "--no-log-file"),
        ("orval", "--config", "./orval.config.cjs"),
        ("tsc", "--project", "."),
    ):
        ended(start(tools / command[0], *command[1:], DOCUMENT=str(document), TENANTDESK_URL=for_orval.url, REDOCLY_TELEMETRY="off"))
    clients = [("life.js", server), ("hey.js", for_hey), ("orval.js", for_orval)]
    for client in [start("node", f"compiled/{name}", **address(own)) for name, own in clients]:
        print(ended(client), end="")
