"""A disk for nbdkit's Python plugin that loses writes when the power goes.

    nbdkit python lab/disk.py image=FILE seed=NUMBER log=FILE off=FILE

A write stays in memory until a flush puts it and those before it into the image. A connection that ends is a power cut: of the
writes that no flush followed, a random part gets to the image, of some only a part of the sectors, and the rest is lost. The log
gets a line for each cut. The n-th cut draws from the seed plus n.

Most moments under load have no such writes. So whoever is about to cut the power makes the file `off`. The next flush that has
something to do removes it and stays without an answer, until there has been time to end the connection.
"""

import builtins
import errno
import mmap
import os
import random
import time

import nbdkit

API_VERSION = 2
SECTOR = 512
options = {}
cuts = 0


def config(name, value):
    options[name] = value


class Disk:
    def __init__(self):
        self.image = builtins.open(options["image"], "r+b", buffering=0)
        # Writes to this map do not get to the image.
        self.cache = mmap.mmap(self.image.fileno(), 0, access=mmap.ACCESS_COPY)
        self.unflushed = []

    def store(self, offset, data):
        self.image.seek(offset)
        self.image.write(data)


def open(readonly):
    return Disk()


def get_size(disk):
    return len(disk.cache)


def can_write(disk):
    return True


def can_flush(disk):
    return True


def pread(disk, buffer, offset, flags):
    buffer[:] = disk.cache[offset : offset + len(buffer)]


def pwrite(disk, buffer, offset, flags):
    data = bytes(buffer)
    disk.cache[offset : offset + len(data)] = data
    disk.unflushed.append((offset, data))


def flush(disk, flags):
    if disk.unflushed and os.path.exists(options["off"]):
        os.unlink(options["off"])
        time.sleep(2)
        nbdkit.set_error(errno.EIO)
        raise OSError("the power is off")
    for write in disk.unflushed:
        disk.store(*write)
    disk.unflushed.clear()


def close(disk):
    global cuts
    cuts += 1
    seed = int(options["seed"]) + cuts
    chance = random.Random(seed)
    share = chance.random()
    count = {"kept": 0, "torn": 0, "lost": 0}
    for offset, data in disk.unflushed:
        fate = "kept" if chance.random() < share else "torn" if len(data) > SECTOR and chance.random() < 0.25 else "lost"
        count[fate] += 1
        if fate == "kept":
            disk.store(offset, data)
        elif fate == "torn":
            for start in range(0, len(data), SECTOR):
                if chance.random() < 0.5:
                    disk.store(offset + start, data[start : start + SECTOR])
    fates = ", ".join(f"{number} {fate}" for fate, number in count.items())
    with builtins.open(options["log"], "a") as log:
        log.write(f"cut {cuts}, seed {seed}: {len(disk.unflushed)} unflushed writes, {fates}\n")
    disk.cache.close()
    disk.image.close()
