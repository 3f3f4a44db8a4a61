"""What many would write: FastAPI and sqlite3, one table, WAL, every commit synced."""

import os
import sqlite3
import threading
from datetime import datetime, timezone

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

app = FastAPI()
local = threading.local()
FIELDS = ("name customer_number email phone street postal_code city country status customer_since notes "
          "created_at updated_at").split()


class Customer(BaseModel):
    name: str
    customer_number: str | None = None
    email: str | None = None
    phone: str | None = None
    street: str | None = None
    postal_code: str | None = None
    city: str | None = None
    country: str | None = None
    status: str = "active"
    customer_since: str | None = None
    notes: str | None = None


def database():
    if not hasattr(local, "connection"):
        connection = sqlite3.connect(os.environ["PEER_FILE"], timeout=30, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY AUTOINCREMENT, "
                           + ", ".join(f"{field} TEXT" for field in FIELDS) + ")")
        local.connection = connection
    return local.connection


@app.get("/customers")
def page():
    return {"data": [dict(row) for row in database().execute("SELECT * FROM customers ORDER BY id LIMIT 50")]}


@app.get("/customers/{number}")
def one(number: int):
    row = database().execute("SELECT * FROM customers WHERE id = ?", [number]).fetchone()
    if row is None:
        raise HTTPException(404)
    return dict(row)


@app.post("/customers", status_code=201)
def create(customer: Customer):
    now = datetime.now(timezone.utc).isoformat()
    record = customer.model_dump() | {"created_at": now, "updated_at": now}
    places = ", ".join("?" * len(FIELDS))
    made = database().execute(f"INSERT INTO customers ({', '.join(FIELDS)}) VALUES ({places})",
                              [record[field] for field in FIELDS])
    return {"id": made.lastrowid} | record
