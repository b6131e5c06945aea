#!/usr/bin/env python3
"""The shortest packets of UDP.

    udp.py flood ADDRESS RATE SECONDS    packets of 64 bytes with FCS, so many a second (0: as many as it can), cut by
                                         this host's stack of longer ones; prints how many it sent
    udp.py sink SECONDS                  takes the port, and leaves what comes to the kernel to drop
"""

import socket
import sys
import time

PORT = 9000


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


{"flood": flood, "sink": sink}[sys.argv[1]](*sys.argv[2:])
