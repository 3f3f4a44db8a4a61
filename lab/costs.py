#!/usr/bin/env python3
"""Measures what a promise costs a POST of a customer in SQLite alone, in groups of 16 that share a commit.

    lab/costs.py [--blocks 40]

Each variant of the schema has a file with 5,000 customers. The variants take turns, a block of 512 customers each. Processor time is the
median of the blocks. The bytes of the write-ahead log are the same on every machine."""

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
import uuid
from pathlib import Path

from speed import customer

SCHEMA = (Path(__file__).resolve().parent.parent / "schema.sql").read_text()
NOW = "2026-11-29T12:00:00Z"
VARIANTS = ("as it is", "one more index", "without the change log", "without the text of searches", "without the stored response")


class File:
    def __init__(self, directory, variant):
        self.variant, self.number, self.path = variant, 0, Path(directory) / f"{VARIANTS.index(variant)}.db"
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = FULL;" + SCHEMA)
        if variant == "one more index":
            self.connection.execute("CREATE INDEX one_more ON customers (city, name)")
        self.insert(5000)

    def insert(self, count):
        """Returns the microseconds of processor time and the bytes of the write-ahead log for each customer."""
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        records = [customer(self.number + number) for number in range(count)]
        begun = time.process_time()
        for first in range(0, count, 16):
            self.connection.execute("BEGIN IMMEDIATE")
            for record in records[first:first + 16]:
                self.insert_one(record)
            self.connection.execute("COMMIT")
        spent = time.process_time() - begun
        return spent / count * 1e6, Path(f"{self.path}-wal").stat().st_size / count

    def insert_one(self, record):
        self.number += 1
        search = "" if self.variant == "without the text of searches" else "\n".join(record.values()).casefold()
        row = record | {"created_at": NOW, "updated_at": NOW, "search": search, "version": self.number}
        run, marks = self.connection.execute, ", ".join("?" * len(row))
        found = run(f"INSERT INTO customers ({', '.join(row)}) VALUES ({marks})", [*row.values()])
        if self.variant != "without the change log":
            entry = {"seq": self.number, "at": NOW, "resource": "customers", "record_id": found.lastrowid, "action": "created",
                     "fields": json.dumps(list(record)), "by_key": 1, "by_name": "first key", "by_prefix": "tdk_abcd",
                     "request_id": uuid.uuid4().bytes}
            run(f"INSERT INTO changes ({', '.join(entry)}) VALUES ({', '.join('?' * len(entry))})", [*entry.values()])
        if self.variant != "without the stored response":
            answer = [uuid.uuid4().bytes, bytes(32), 201, "/customers.php?id=1", '"1"', json.dumps(record).encode(), 1764417600]
            run("INSERT INTO idempotency (key, request, status, location, etag, body, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)", answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40)
    blocks = parser.parse_args().blocks
    with tempfile.TemporaryDirectory() as directory:
        files = [File(directory, variant) for variant in VARIANTS]
        rounds = [[file.insert(512) for file in files] for _ in range(blocks)]
    print("| variant | processor time | of that as it is | write-ahead log |\n|---|---|---|---|")
    for number, variant in enumerate(VARIANTS):
        spent = statistics.median(found[number][0] for found in rounds)
        ratio = statistics.median(found[number][0] / found[0][0] for found in rounds)
        log = statistics.mean(found[number][1] for found in rounds)
        print(f"| {variant} | {spent:.0f} µs | {ratio:.2f} | {log / 1024:.1f} KiB |")


main()
