"""Servers of FTP (RFC 959, RFC 2428) and TFTP (RFC 1350). Each file is the address of the host that
gets it, as the server sees it."""

import socket
import struct
import threading


def plain(address):
    return address[0].removeprefix("::ffff:")


def listener(port, kind=socket.SOCK_STREAM):
    sock = socket.socket(socket.AF_INET6, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("::", port))
    return sock


def control(conn):
    lines = conn.makefile("r", newline="\r\n")
    announced = None

    def say(text):
        conn.sendall((text + "\r\n").encode())

    say("220 ready")
    for line in lines:
        command, _, rest = line.strip().partition(" ")
        command = command.upper()
        if command == "USER":
            say("331 a password, please")
        elif command == "PASS":
            say("230 welcome")
        elif command == "PWD":
            say('257 "/"')
        elif command == "TYPE":
            say("200 ok")
        elif command in ("PASV", "EPSV"):
            waiting = listener(0)
            waiting.listen()
            port = waiting.getsockname()[1]
            if command == "PASV":
                address = plain(conn.getsockname()).replace(".", ",")
                say(f"227 Entering Passive Mode ({address},{port >> 8},{port & 255}).")
            else:
                say(f"229 Entering Extended Passive Mode (|||{port}|)")
            announced = lambda: waiting.accept()[0]
        elif command == "PORT":
            *address, high, low = rest.split(",")
            to = (".".join(address), int(high) << 8 | int(low))
            announced = lambda: socket.create_connection(to, 3)
            say("200 ok")
        elif command == "EPRT":
            _, _, address, port, _ = rest.split(rest[0])
            to = (address, int(port))
            announced = lambda: socket.create_connection(to, 3)
            say("200 ok")
        elif command == "RETR":
            say("150 here it comes")
            with announced() as data:
                data.sendall(plain(data.getpeername()).encode())
            say("226 done")
        elif command == "QUIT":
            say("221 bye")
            return
        else:
            say("502 not here")


def serve(conn):
    with conn:
        control(conn)


def datagrams():
    requests = listener(69, socket.SOCK_DGRAM)
    while True:
        _, client = requests.recvfrom(2000)
        answers = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        answers.settimeout(3)
        answers.sendto(struct.pack("!HH", 3, 1) + plain(client).encode(), client)


threading.Thread(target=datagrams, daemon=True).start()
server = listener(21)
server.listen()
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
