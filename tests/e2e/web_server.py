"""A web server as far away as one likes: files of a folder, whole or by ranges, with an ETag."""
import contextlib
import http.server
import re
import threading
import time


@contextlib.contextmanager
def web_server(folder, seconds=0.0):
    """On loopback; `.url`, and `.asked`, the number of its answers. Each takes so many seconds."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.do_GET(head=True)

        def do_GET(self, head=False):
            path = folder / self.path.strip("/").partition("?")[0]
            if not path.is_file():
                self.send_error(404)
                return
            with lock:
                server.asked += 1
            time.sleep(seconds)
            size = path.stat().st_size
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            begin, end = (int(wanted[1]), min(int(wanted[2]) + 1, size)) if wanted else (0, size)
            self.send_response(206 if wanted else 200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(end - begin))
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.end_headers()
            if not head:
                with path.open("rb") as file:
                    file.seek(begin)
                    self.wfile.write(file.read(end - begin))

        def log_message(self, *_):
            pass

    lock = threading.Lock()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = 0
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
