"""Stands between dr-ctl and a broker's console: writes down every request that would change something, and can fail,
lie or act at a chosen one. What it has not forwarded the broker has not seen."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import requests

from dr_ctl.jolokia.client import NOBODY

READING = ("list", "browse", "get", "count", "canInvoke")
# The lock on the brokers is kept beside the calls of a plan, in documents that are written by these.
LOCKING = ("createQueue(java.lang.String)", "updateQueue(java.lang.String)", "destroyQueue(java.lang.String)")


@dataclass(frozen=True)
class Snapshot:
    bean: str
    operation: str
    arguments: tuple[Any, ...] = ()


@dataclass
class Recorder:
    """`before` is called with the changes of a POST before they are forwarded; a reply from it is given instead."""

    url: str
    before: Callable[[list[Snapshot]], tuple[int, str] | None] | None = None
    changes: list[Snapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/console/jolokia"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            document = json.loads(body)
            changes = [
                Snapshot(item["mbean"], item["operation"], tuple(item["arguments"]))
                for item in (document if isinstance(document, list) else [document])
                if item["type"] == "exec"
                and NOBODY not in item["mbean"]
                and not item["operation"].startswith(READING)
                and item["operation"] not in LOCKING
            ]
            instead = recorder.before(changes) if recorder.before is not None and changes else None
            if instead is not None:
                return self._reply(*instead)
            recorder.changes += changes
            headers = {name: self.headers[name] for name in ("Authorization", "Origin", "Content-Type")}
            try:
                reply = requests.post(recorder.url, data=body, headers=headers, timeout=60)
            except requests.ConnectionError:
                # The broker is gone: so is its console.
                self.close_connection = True
                return None
            return self._reply(reply.status_code, reply.text)

        def _reply(self, status: int, text: str) -> None:
            raw = text.encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the command was killed meanwhile, which is what some tests do

        def log_message(self, *_: object) -> None:
            pass

    return Handler
