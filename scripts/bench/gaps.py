#!/usr/bin/env python3
"""Sends packets through a switch at an even pace, and says which of them came late.

    gaps.py send ADDRESS MICROSECONDS      a datagram every so often, until killed
    gaps.py receive FILE                   writes of each that comes: when it was sent, its delay and
                                           how long the one before took to send, until killed
    gaps.py flows DEVICE MAC RATE COUNT    COUNT sources (0: no end) send to MAC in turn, RATE packets
                                           a second, until killed
    gaps.py report FILE BEGIN END          of what was sent between two times (s)
"""

import signal
import socket
import struct
import sys
import time

PORT = 9000
# The sender was held up itself: what it then sent says nothing.
HELD_UP = 200_000


def send(address, pause):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((address, PORT))
    pause = int(float(pause) * 1000)
    number = took = 0
    at = time.monotonic_ns()
    while True:
        wait = at - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        elif wait < -50 * pause:
            at -= wait
        begun = time.time_ns()
        try:
            sender.send(struct.pack("=QQQ", number, begun, took))
        except OSError:
            pass
        took = time.time_ns() - begun
        number += 1
        at += pause


def receive(file):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # 33 is SO_RCVBUFFORCE, 35 SO_TIMESTAMPNS: the kernel notes when packets come.
    receiver.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    receiver.setsockopt(socket.SOL_SOCKET, 35, 1)
    receiver.bind(("", PORT))
    with open(file, "wb", buffering=1 << 13) as out:
        signal.signal(signal.SIGTERM, lambda *_: (out.flush(), sys.exit()))
        while True:
            data, control, _, _ = receiver.recvmsg(64, 64)
            seconds, nanos = struct.unpack("qq", control[0][2][:16])
            number, sent, took = struct.unpack("=QQQ", data)
            out.write(struct.pack("=QQqQ", number, sent, seconds * 10**9 + nanos - sent, took))


def flows(device, mac, rate, count):
    """UDP of sources 10.64.0.0 and up."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((device, 0x0800))
    pause, count = 1 / float(rate), int(count)
    to = bytes.fromhex(mac.replace(":", ""))
    number = 0
    at = time.monotonic()
    while True:
        source = 10 << 24 | 64 << 16 | (number % count if count else number % (1 << 22))
        head = struct.pack("!BBHHHBBHII", 0x45, 0, 46, 0, 0, 64, 17, 0, source, 10 << 24 | 2)
        total = sum(struct.unpack("!10H", head))
        total = (total & 0xFFFF) + (total >> 16)
        head = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
        sender.send(to + b"\x02" + b"\x99" * 5 + b"\x08\x00" + head + struct.pack("!HHHH", 1, 9, 26, 0) + bytes(18))
        number += 1
        at += pause
        wait = at - time.monotonic()
        if wait > 0.001:
            time.sleep(wait)
        elif wait < -1:
            at -= wait


def report(file, begin, end):
    begin, end = int(float(begin) * 1e9), int(float(end) * 1e9)
    with open(file, "rb") as data:
        samples = list(struct.iter_unpack("=QQqQ", data.read()))
    held_up = {number - 1 for number, _, _, took in samples if took > HELD_UP}
    inside = [sample for sample in samples if begin <= sample[1] < end]
    if not inside:
        print("no packet came")
        return
    sent = inside[-1][0] - inside[0][0] + 1
    delays = sorted(delay for number, _, delay, _ in inside if number not in held_up)
    at = lambda share: delays[min(int(len(delays) * share), len(delays) - 1)] / 1e6
    print(
        f"longest {delays[-1] / 1e6:.3f} ms, p99.9 {at(0.999):.3f}, median {at(0.5):.3f}, over 2 ms "
        f"{sum(delay > 2_000_000 for delay in delays)} of {len(delays)}, lost {sent - len(inside)}"
    )


{"send": send, "receive": receive, "flows": flows, "report": report}[sys.argv[1]](*sys.argv[2:])
