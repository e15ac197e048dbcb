"""An agent's figures for Prometheus under `/metrics`, and whether it is well under `/health`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.model import Json

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure; a name that ends in `_total` is a counter."""

    name: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    well: bool
    health: Mapping[str, Json]
    metrics: Sequence[Metric]


def exposition(metrics: Sequence[Metric]) -> str:
    """In Prometheus' text format, figures of one name together."""
    lines: list[str] = []
    for name in dict.fromkeys(each.name for each in metrics):
        same = [each for each in metrics if each.name == name]
        lines += [f"# HELP {name} {same[0].help}", f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"]
        lines += [f"{name}{_labels(each.labels)} {each.value}" for each in same]
    return "\n".join([*lines, ""])


def _labels(labels: Sequence[tuple[str, str]]) -> str:
    quoted = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels]
    return f"{{{','.join(quoted)}}}" if quoted else ""


class Board:
    """The latest of what is shown, for the server's threads."""

    def __init__(self) -> None:
        self.shown = Shown(well=False, health={"phase": "starting"}, metrics=())


@contextmanager
def exposing(address: str | None) -> Iterator[Board]:
    """Serve at HOST:PORT while the block runs; without an address nothing is served."""
    board = Board()
    if address is None:
        yield board
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"--metrics {address}: expected HOST:PORT, as in 127.0.0.1:9410")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(board))
    except (OSError, OverflowError) as error:
        raise EnvironmentFault(f"{address} cannot be listened on: {error}") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield board
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(board: Board) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = board.shown
            if self.path == "/metrics":
                self._answer(200, TEXT, exposition(shown.metrics))
            elif self.path == "/health":
                self._answer(200 if shown.well else 503, "application/json", json.dumps(dict(shown.health)))
            else:
                self._answer(404, "text/plain", "/metrics or /health\n")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Nobody reads who asked."""

    return Handler
