#!/usr/bin/env python3
"""UDP at an even rate, and who sent how much of what came.

    udp.py send ADDRESS RATE BYTES SECONDS     datagrams of frames of so many bytes, at a rate in bit/s of frames
    udp.py flood ADDRESS RATE SECONDS          the shortest packets (64 bytes with FCS), so many a second (0: as many as it can), cut by this host's
                                               stack of longer ones; prints how many it sent
    udp.py sink SECONDS                        takes the port, and leaves what comes to the kernel to drop
    udp.py receive AFTER SECONDS               SOURCE PACKETS BYTES of each source (frames) that came in so many seconds, after so many
"""

import collections
import socket
import sys
import time

PORT = 9000
HEADERS = 42


def send(address, rate, size, seconds):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((address, PORT))
    data = bytes(int(size) - HEADERS)
    gap = float(size) * 8 / float(rate)
    at = time.monotonic()
    end = at + float(seconds)
    while at < end:
        wait = at - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        try:
            sender.send(data)
        except OSError:
            pass
        at += gap


def flood(address, rate, seconds):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((address, PORT))
    # 103 is UDP_SEGMENT.
    sender.setsockopt(socket.IPPROTO_UDP, 103, 18)
    rate = float(rate)
    at_once = 60 if rate == 0 else 8
    data = bytes(18 * at_once)
    begin = time.monotonic()
    end = begin + float(seconds)
    count = 0
    while (now := time.monotonic()) < end:
        if rate == 0 or count <= (now - begin) * rate:
            try:
                sender.send(data)
                count += at_once
            except OSError:
                pass
    print(count)


def sink(seconds):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
    receiver.bind(("", PORT))
    time.sleep(float(seconds))


def receive(after, seconds):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # 33 is SO_RCVBUFFORCE.
    receiver.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
    receiver.bind(("", PORT))
    receiver.settimeout(0.2)
    begin = time.monotonic() + float(after)
    end = begin + float(seconds)
    counts = collections.defaultdict(lambda: [0, 0])
    while time.monotonic() < end:
        try:
            data, (source, _) = receiver.recvfrom(2048)
        except TimeoutError:
            continue
        if begin <= time.monotonic() < end:
            counts[source][0] += 1
            counts[source][1] += len(data) + HEADERS
    for source, (packets, size) in sorted(counts.items()):
        print(source, packets, size)


{"send": send, "flood": flood, "sink": sink, "receive": receive}[sys.argv[1]](*sys.argv[2:])
