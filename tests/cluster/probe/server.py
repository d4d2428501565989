"""Answers every GET on port 8080 with its host name and the GPUs that it was given."""

import http.server
import json
import os
import socket


class Who(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        gpus = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
        body = json.dumps({"host": socket.gethostname(), "gpus": [gpu for gpu in gpus if gpu]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("", 8080), Who).serve_forever()
