"""Exposes an agent: prints a sample as a line, serves figures for Prometheus under `/metrics`, reports whether the
agent is well (`/health`) and ready (`/ready`), and sends a service manager its state, as `Type=notify` units expect."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf, nan
from typing import TYPE_CHECKING, ClassVar, Final

from dr_ctl.core.document import HIDDEN, derived, document, key, optional
from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.model import Finding, Json, Role
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import boottime_s, stamp
from dr_ctl.rpo.history.row import Takeover
from dr_ctl.topologies.registry import Snapshot

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

_COUNTER_SUFFIX: Final = "_total"
READY: Final = "READY=1"
ALIVE: Final = "WATCHDOG=1"
STOPPING: Final = "STOPPING=1"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure; its name ends in `_total` if it is a counter. Figures of one name have the same labels. An unread
    figure (None) is NaN, for which every comparison is false."""

    name: str
    help: str
    value: float | datetime | None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServedState:
    """What an agent serves: it is `well` if it does its work, and `ready` if it has a reading, which `health`
    describes. The reading is recent for `good_for_s` from `taken_at` on. `problems` are those of the sites."""

    well: bool
    health: Mapping[str, Json]
    metrics: Sequence[Metric]
    ready: bool = True
    good_for_s: float = inf
    problems: Sequence[Finding] | None = None
    taken_at: float = field(default_factory=boottime_s, compare=False)

    @property
    def is_ready(self) -> bool:
        """Say whether the agent is ready now, and does not hang with an old reading."""
        return self.well and self.ready and boottime_s() < self.taken_at + self.good_for_s


@dataclass(frozen=True, slots=True)
class AutomaticRun:
    """A run that the monitor made by itself."""

    run: str | None
    outcome: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class MonitorData:
    readings: int
    rows: int
    reinstated: Sequence[AutomaticRun] | None = optional()
    unfenced: Sequence[AutomaticRun] | None = optional()
    quarantined: Sequence[AutomaticRun] | None = optional()


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample. `outflows` holds None where one was not read. `trouble` is a fault of the history; `waiting` and
    `dropped` count the rows that it affects. `takeovers` were seen since the sample before."""

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}

    at: datetime = field(metadata=key("ts"))
    roles: Mapping[str, Role]
    outflows: Mapping[str, int | None]
    snapshot: Snapshot = field(metadata=HIDDEN)
    trouble: str | None = field(default=None, metadata=HIDDEN)
    waiting: int = field(default=0, metadata=HIDDEN)
    dropped: int = field(default=0, metadata=HIDDEN)
    takeovers: Sequence[Takeover] = ()

    @derived
    def history(self) -> dict[str, str | int | None]:
        return {"trouble": self.trouble, "waiting": self.waiting, "dropped": self.dropped}

    @property
    def line(self) -> str:
        parts = [f"{site} {role.value}, {if_known(self.outflows[site])} to ship" for site, role in self.roles.items()]
        return f"{stamp(self.at)}  " + "; ".join([*parts, *(takeover.text for takeover in self.takeovers)])


class Board:
    """Holds the latest state of the agent for the server's threads."""

    def __init__(self) -> None:
        self.shown = ServedState(well=False, health={"phase": "starting"}, metrics=(), ready=False)


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
        raise EnvironmentFault(f"cannot listen on {address}: {error}") from error
    server.daemon_threads = True
    # Other programs read this server, so its thread is never simulated.
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)  # noqa: TID251
    thread.start()
    try:
        yield board
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def registry_of(board: Board) -> CollectorRegistry:
    """Make a registry of these figures only, with a family for each name, and without the process's default figures."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - loaded only to serve figures
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    class Figures:
        def collect(self) -> Iterator[Family]:
            metrics = board.shown.metrics
            for name in dict.fromkeys(figure.name for figure in metrics):
                same = [figure for figure in metrics if figure.name == name]
                labels = [label for label, _ in same[0].labels]
                is_counter = name.endswith(_COUNTER_SUFFIX)
                family = CounterMetricFamily if is_counter else GaugeMetricFamily
                metric = family(name.removesuffix(_COUNTER_SUFFIX) if is_counter else name, same[0].help, labels=labels)
                for figure in same:
                    metric.add_metric([value for _, value in figure.labels], _number(figure.value))
                yield metric

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return registry


def _handler(board: Board) -> type[BaseHTTPRequestHandler]:
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - as above

    registry = registry_of(board)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            shown = board.shown
            if self.path.partition("?")[0] == "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                # Before the first reading there are no figures, so the target is not healthy.
                self._answer(200 if shown.metrics else 503, kind, encode(registry))
            elif self.path in ("/health", "/ready"):
                is_good, answer = shown.well, dict(shown.health)
                if self.path == "/ready":
                    is_good = shown.is_ready
                    for row in (rows := document(shown.problems or ())):
                        row["text"] = row["text"].replace("\n      ", "; ")
                    answer |= {} if shown.problems is None else {"problems": rows}
                self._answer(200 if is_good else 503, "application/json", json.dumps(answer).encode())
            else:
                self._answer(404, "text/plain", b"/metrics, /health or /ready\n")

        do_HEAD = do_GET  # noqa: N815 - the library's name

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Log no requests."""

    return Handler


def notify(*states: str) -> bool:
    """Send these states to a service manager, and say whether there is one. A failure is ignored."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager, suppress(OSError):
        manager.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
        manager.sendall("\n".join(states).encode())
        return True
    return False


def _number(value: float | datetime | None) -> float:
    if value is None:
        return nan
    return value.timestamp() if isinstance(value, datetime) else float(value)
