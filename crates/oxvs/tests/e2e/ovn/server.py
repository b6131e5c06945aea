"""Answers with the number of its port: a web page, and a datagram for each datagram."""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1])
ANSWER = str(PORT).encode()


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


def datagrams():
    receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    receiver.bind(("::", PORT))
    while True:
        _, sender = receiver.recvfrom(2000)
        receiver.sendto(ANSWER, sender)


threading.Thread(target=datagrams, daemon=True).start()
Server(("::", PORT), Page).serve_forever()
