"""A proxy in front of an S3 server on loopback that is as slow and as unwilling as one far away.

    with slow(upstream="http://127.0.0.1:8333", latency=0.02, refused=0.01) as url: …

Each request waits for `latency` before it goes on; of every 100, `refused` × 100 are answered 503 SlowDown, by their
number, so that all clients meet as many. Heads go through unchanged, so signatures hold. A thread a connection; bodies
are spliced in the kernel. In a process of its own, which ends with the block.
"""
import contextlib
import multiprocessing
import os
import re
import socket
import threading
import time
import urllib.parse

BODY = (b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
        b"<Message>Please reduce your request rate.</Message></Error>")
REFUSAL = (b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(BODY))
PIECE = 1 << 20


class Connection:
    """One side: a socket, and bytes of it that were read with a head and come after it."""

    def __init__(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.rest = sock, b""

    def head(self):
        """Up to the empty line; None at the connection's end."""
        while b"\r\n\r\n" not in self.rest:
            more = self.sock.recv(65536)
            if not more:
                return None
            self.rest += more
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def line(self):
        while b"\r\n" not in self.rest:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionError("the end within a chunk")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\r\n")
        return line + b"\r\n"

    def give(self, count, to, pipe):
        """So many bytes, to a socket."""
        here = self.rest[:count]
        self.rest = self.rest[len(here):]
        if here:
            to.sendall(here)
        left = count - len(here)
        while left:
            got = os.splice(self.sock.fileno(), pipe[1], min(left, PIECE))
            if got == 0:
                raise ConnectionError("the end within a body")
            left -= got
            while got:
                got -= os.splice(pipe[0], to.fileno(), got)


def header(head, name):
    found = re.search(rb"\r\n" + name + rb":[ \t]*([^\r\n]*)", head, re.I)
    return found.group(1).strip() if found else None


def answer(server, client, method, pipe):
    """Gives one answer of the server to the client."""
    while True:
        head = server.head()
        if head is None:
            raise ConnectionError("no answer")
        client.sendall(head)
        status = int(head.split(b" ", 2)[1])
        if status >= 200:
            break
    if method == b"HEAD" or status in (204, 304):
        return
    if header(head, b"content-length") is not None:
        server.give(int(header(head, b"content-length")), client, pipe)
    elif (header(head, b"transfer-encoding") or b"").lower() == b"chunked":
        while True:
            line = server.line()
            client.sendall(line)
            size = int(line.split(b";")[0], 16)
            server.give(size + 2, client, pipe)
            if size == 0:
                return
    else:
        raise ConnectionError("a body without an end")


class Proxy:
    def __init__(self, upstream, latency, refused):
        self.upstream, self.latency, self.refused = upstream, latency, refused
        self.requests, self.lock = 0, threading.Lock()

    def is_refused(self):
        with self.lock:
            self.requests += 1
            return int(self.requests * self.refused) > int((self.requests - 1) * self.refused)

    def serve(self, sock):
        client, server, pipe = Connection(sock), None, os.pipe()
        try:
            while True:
                head = client.head()
                if head is None:
                    return
                method = head.split(b" ", 1)[0]
                length = int(header(head, b"content-length") or 0)
                time.sleep(self.latency)
                if length == 0 and self.is_refused():
                    sock.sendall(REFUSAL + (b"" if method == b"HEAD" else BODY))
                    continue
                if server is None:
                    server = Connection(socket.create_connection(self.upstream))
                server.sock.sendall(head)
                client.give(length, server.sock, pipe)
                answer(server, sock, method, pipe)
        except (ConnectionError, OSError):
            return  # whoever is at the other side sees the connection's end
        finally:
            sock.close()
            if server:
                server.sock.close()
            for end in pipe:
                os.close(end)

    def run(self, listening):
        while True:
            sock = listening.accept()[0]
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()


@contextlib.contextmanager
def slow(upstream, latency, refused):
    address = urllib.parse.urlsplit(upstream)
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    proxy = Proxy((address.hostname, address.port), latency, refused)
    process = multiprocessing.get_context("fork").Process(target=proxy.run, args=(listening,), daemon=True)
    process.start()
    try:
        yield "http://127.0.0.1:%d" % listening.getsockname()[1]
    finally:
        process.kill()
        process.join(10)
        listening.close()
