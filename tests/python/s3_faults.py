"""A proxy before an S3 server that does what S3 does on a bad day. Prints its port, then runs until it is killed.

    s3_faults.py SERVER SEED

Every other PUT is answered as it should be; the rest get 503 SlowDown, 500 after the object was stored, 409
ConditionalRequestConflict, 403 ExpiredToken, or a connection that is cut before or after the object was stored.
"""

import http.client
import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

server, chance, lock = sys.argv[1], random.Random(int(sys.argv[2])), threading.Lock()
FAULTS = ["503", "500 after", "409", "403", "cut", "cut after"]


def error(code):
    return f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self, body):
        connection = http.client.HTTPConnection(server, timeout=30)
        # The host is signed: it has to be the one that was asked.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()

    def answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length", str(len(body)))
        self.send_header("content-length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with lock:
            fault = chance.choice(FAULTS) if self.command == "PUT" and chance.random() < 0.5 else None
        if fault in (None, "500 after", "cut after"):
            answered = self.forward(body)
        if fault is None:
            self.answer(*answered)
        elif fault.startswith("cut"):
            self.close_connection = True
            self.connection.close()
        else:
            code = {"503": "SlowDown", "500 after": "InternalError", "409": "ConditionalRequestConflict", "403": "ExpiredToken"}[fault]
            self.answer(int(fault[:3]), [("content-type", "application/xml")], error(code))

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

    def log_message(self, *_):
        pass


listening = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
print(listening.server_port, flush=True)
listening.serve_forever()
