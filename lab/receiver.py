#!/usr/bin/env python3
"""Receives HTTPS requests and mails for any name, and prints each as one line: `lab/receiver.py CERTIFICATE KEY`."""

import asyncio
import re
import ssl
import sys


async def request(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\ncontent-length: (\d+)", head)
    body = await reader.readexactly(int(length[1])) if length else b""
    print(repr((head + body).decode()), flush=True)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


async def mail(reader, writer):
    answers = {"EHLO": "250-desk\r\n250 AUTH PLAIN", "AUTH": "334 ", "MAIL": "250 Yes.", "RCPT": "250 Yes.", "DATA": "354 Send it.", "QUIT": "221 Bye."}
    heard, word = "", ""
    writer.write(b"220 Hello.\r\n")
    while word != "QUIT":
        line = (await reader.readline()).decode()
        word, heard = line.split()[0], heard + line
        # A line without such a word is the password.
        writer.write(f"{answers.get(word, '235 Yes.')}\r\n".encode())
        if word == "DATA":
            heard += (await reader.readuntil(b"\r\n.\r\n")).decode()
            writer.write(b"250 Yes.\r\n")
    print("MAIL", repr(heard), flush=True)
    writer.close()


async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*sys.argv[1:])
    for port, handler in ((443, request), (465, mail)):
        await asyncio.start_server(handler, "10.0.0.1", port, ssl=context)
    await asyncio.Event().wait()


asyncio.run(main())
