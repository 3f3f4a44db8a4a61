"""Prints `TIME MACHINE` whenever another machine begins to answer for an address, until it is ended.

Arguments: a network interface of the clients, and the service's address. The machine is the last byte of the Ethernet address
that a segment with data came from. Times are in seconds, as in load.py.
"""

import socket
import sys
import time

INTERFACE, ADDRESS = sys.argv[1], socket.inet_aton(sys.argv[2])
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
packets.bind((INTERFACE, 0))
last = None
while True:
    frame = packets.recv(65535)
    header = 14 + (frame[14] & 15) * 4
    if frame[26:30] != ADDRESS or frame[23] != socket.IPPROTO_TCP or frame[header : header + 2] != b"\x1f\x90":
        continue
    length = int.from_bytes(frame[16:18], "big") + 14 - header - (frame[header + 12] >> 4) * 4
    if length > 0 and frame[11] != last:
        last = frame[11]
        print(time.monotonic(), f"node{last}", flush=True)
