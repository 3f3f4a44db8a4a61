"""Schemathesis against the real server, with the document that it serves: every check, every operation, links too.

    python run_schemathesis.py BINARY [further options of `schemathesis run`]
"""

import os
import subprocess
import sys
from pathlib import Path

from service import Server

HERE = Path(__file__).resolve().parent

with Server(sys.argv[1]) as server:
    # From a directory of its own: nothing that a run leaves behind decides about the next.
    outcome = subprocess.run(
        [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(HERE / "schemathesis.toml"),
         "run", f"{server.url}/openapi.json", *sys.argv[2:]],
        cwd=server.directory.name,
        env={**os.environ, "TENANTDESK_KEY": server.key, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"},
    )
sys.exit(outcome.returncode)
