#!/usr/bin/env python3
"""An extension of the agent: the protocol is in crates/agent/src/extensions/frames.rs."""
import json
import struct
import sys

source, sink = sys.stdin.buffer, sys.stdout.buffer


def read():
    head = source.read(5)
    if len(head) < 5:
        sys.exit(0)
    letter, length = struct.unpack(">cI", head)
    return letter, source.read(length)


def say(letter, message=None, raw=None):
    body = raw if raw is not None else json.dumps(message or {}).encode()
    sink.write(struct.pack(">cI", letter, len(body)) + body)
    if letter in b"RDE":
        sink.flush()


def content():
    pieces = []
    while True:
        letter, body = read()
        if letter == b"Z":
            return b"".join(pieces)
        pieces.append(body)


def work(trigger, keeps):
    try:
        lines = content().decode().splitlines()
    except UnicodeDecodeError as error:
        say(b"E", {"message": f"no UTF-8: {error.reason}"})
        return
    prefix = trigger["properties"].get("Prefix", "")
    attributes = {"reversed.lines": str(len(lines)), "dropped": None}
    say(b"O", {"relationship": "success", "attributes": attributes, "content": "new"})
    for line in lines:
        say(b"C", raw=f"{prefix}{line[::-1]}\n".encode())
    say(b"Z", raw=b"")
    if keeps:
        say(b"O", {"relationship": "original", "isOriginal": True})
    say(b"D")


_, start = read()
settings = json.loads(start)["properties"]
say(b"R")
while True:
    _, trigger = read()
    work(json.loads(trigger), settings.get("Original") == "true")
