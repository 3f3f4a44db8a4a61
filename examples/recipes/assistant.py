#!/usr/bin/env python3
"""A read-only assistant: an MCP server on standard input and output. README.md in this directory describes it."""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

INCLUDES = {"customers": None, "employees": "customer", "hardware": "employee,customer"}
RESOURCE = {"type": "string", "enum": list(INCLUDES)}


def ask(endpoint, **parameters):
    query = urllib.parse.urlencode({name: value for name, value in parameters.items() if value is not None})
    headers = {"Authorization": f"Bearer {os.environ['TENANTDESK_KEY']}"}
    request = urllib.request.Request(f"{os.environ['TENANTDESK_URL']}/{endpoint}.php?{query}", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def search(resource, words):
    return ask(resource, q=words, include=INCLUDES[resource], limit=20, total="true")


def select(resource, filters, sort="id", cursor=None):
    return ask(resource, **filters, include=INCLUDES[resource], sort=sort, limit=50, cursor=cursor, total="true")


def get(resource, id):
    return ask(resource, id=id, include=INCLUDES[resource])


def history(resource, id):
    return ask("changes", resource=resource, id=id, limit=50)


def schema(**fields):
    return {"type": "object", "properties": fields, "required": [name for name in fields if name not in ("sort", "cursor")]}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SELECT = """List and count records by their fields, such as {"city": "Berlin"} or {"warranty_until_to": "2026-12-31"}.
A date field NAME also has NAME_from and NAME_to. A minus in front of sort means descending."""
TOOLS = {
    "search": (search, "Find records that contain every word.", schema(resource=RESOURCE, words=TEXT)),
    "select": (select, SELECT, schema(resource=RESOURCE, filters={"type": "object"}, sort=TEXT, cursor=TEXT)),
    "get": (get, "Read one record.", schema(resource=RESOURCE, id=NUMBER)),
    "history": (history, "Who changed a record, when, and the former values.", schema(resource=RESOURCE, id=NUMBER)),
}


def call(tool, arguments):
    try:
        text, failed = json.dumps(TOOLS[tool][0](**arguments), ensure_ascii=False), False
    except urllib.error.HTTPError as error:
        text, failed = error.read().decode(), True
    except (KeyError, TypeError, OSError) as error:
        text, failed = f"{type(error).__name__}: {error}", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def answer(method, parameters):
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "tenantdesk", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": text, "inputSchema": schema} for name, (_, text, schema) in TOOLS.items()]}
    if method == "tools/call":
        return call(parameters["name"], parameters.get("arguments", {}))
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message.get("method"), message.get("params", {}))
        outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
