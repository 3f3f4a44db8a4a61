#!/usr/bin/env python3
"""The size of the edge: crates, lines, and bytes of the program.

    benches/edge_weight.py [--bytes]

Crates: `cargo tree` lists what the program is linked of, once as it is and once with the edge's direct dependencies left
out. What is only in the first list came for the edge. In the same way for TLS.

Bytes (builds the program for release into target/edge-weight, not stripped, which takes minutes): the sizes of all symbols
that name the edge or one of its crates. A generic function of another crate counts when it is instantiated with a type of
these. What the compiler inlined elsewhere does not count, unlike what it inlined into these. Unwind tables, text and what
else has no symbol is shared out by size: the share of the symbols times the stripped file.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Named only under src/edge, but for a channel of tokio in src/http; tests/layers checks it.
EDGE = ["http-body-util", "hyper", "hyper-util", "socket2", "tokio", "tokio-rustls"]
TLS = ["tokio-rustls"]


def crates(without=()):
    """The names and versions of all linked crates, the program itself among them."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(os.path.join(ROOT, "Cargo.lock"), place)
        with open(os.path.join(ROOT, "Cargo.toml")) as file:
            # Neither the benches nor what only tests need.
            manifest = re.split(r"^\[(?:dev-dependencies|\[bench)", file.read(), flags=re.M)[0]
        lines = [line for line in manifest.splitlines() if line.split(" = ")[0] not in without]
        with open(os.path.join(place, "Cargo.toml"), "w") as file:
            file.write("\n".join(lines) + "\n")
        os.mkdir(os.path.join(place, "src"))
        open(os.path.join(place, "src", "main.rs"), "w").close()
        tree = ["cargo", "tree", "--offline", "-e", "normal", "--prefix", "none", "--format", "{p}"]
        listed = subprocess.run(tree, cwd=place, check=True, capture_output=True, text=True).stdout
        return {tuple(line.split()[:2]) for line in listed.splitlines()}


def symbols(path):
    """Address, size and readable name of each symbol in a program or an archive."""
    listed = subprocess.run(["nm", "--print-size", "--demangle", path], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        match = re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) ([^bBuU]) (.*)", line)
        if match:
            yield match[1], int(match[2], 16), match[4]


def build():
    """The release program with its symbols, and the size that it has stripped."""
    target = os.path.join(ROOT, "target", "edge-weight")
    # The newer scheme of names has a generic function's types in it.
    flags = {"CARGO_PROFILE_RELEASE_STRIP": "none", "RUSTFLAGS": "-Csymbol-mangling-version=v0"}
    command = ["cargo", "build", "--release", "--locked", "--bin", "tenantdesk", "--target-dir", target]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **flags})
    release = os.path.join(target, "release")
    program = os.path.join(release, "tenantdesk")
    subprocess.run(["strip", "-o", program + "-stripped", program], check=True)
    # C and assembly have names of any kind; ring is the edge's only crate with such.
    archives = glob.glob(os.path.join(release, "build", "ring-*", "out", "lib*.a"))
    native = {name for archive in archives for _, _, name in symbols(archive)}
    return program, os.path.getsize(program + "-stripped"), native


def names(some):
    """A pattern for what is named after one of these crates."""
    modules = "|".join(sorted(name.replace("-", "_") for name, _ in some))
    return re.compile(rf"(?<![\w:])(?:{modules})(?:\[[0-9a-f]+\])?::")


def main():
    every, bare, plain = crates(), crates(EDGE), crates(TLS)
    for_edge, for_tls = every - bare, every - plain
    print(f"crates: {len(every) - 1}, of these {len(for_edge)} for the edge, {len(for_tls)} of them for TLS")
    for label, some in (("TLS", for_tls), ("the rest of the edge", for_edge - for_tls)):
        print(f"  {label}: {', '.join(sorted(name for name, _ in some))}")
    directory = os.path.join(ROOT, "src", "edge")
    lines = sum(len(open(os.path.join(directory, name)).readlines()) for name in os.listdir(directory))
    print(f"lines of src/edge: {lines:,}")
    if sys.argv[1:] != ["--bytes"]:
        return
    program, size, native = build()
    # What several names share counts once.
    found = {address: (bytes, name) for address, bytes, name in symbols(program)}.values()
    known = sum(bytes for bytes, _ in found)
    own = re.compile(r"tenantdesk(?:\[[0-9a-f]+\])?::edge::")
    # Of a crate that the rest needs too, in another version, the names do not tell which it is: it is left out.
    shared = {name for name, _ in bare}
    tls, others = ({crate for crate in some if crate[0] not in shared} for some in (for_tls, for_edge - for_tls))
    tls, others = names(tls), names(others)
    sums = {"src/edge": 0, "TLS": 0, "the rest of its crates": 0}
    for bytes, name in found:
        # The first that fits: what TLS does is named after it, what the edge does with hyper after the edge.
        for label, pattern in (("TLS", tls), ("src/edge", own), ("the rest of its crates", others)):
            if pattern.search(name) or (label == "TLS" and name in native):
                sums[label] += bytes
                break
    print(f"stripped: {size:,} bytes; symbols: {known:,} bytes")
    for label, bytes in [*sums.items(), ("the edge together", sum(sums.values()))]:
        print(f"  {label}: {bytes:,} bytes of symbols, {bytes / known:.1%}, so {bytes / known * size / 1e6:.2f} MB of the file")


if __name__ == "__main__":
    main()
