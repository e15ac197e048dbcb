"""The console of one broker: HTTP with a login before Jolokia, as the real one answers, its refusals included."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import socket
import struct
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.bean import ILLEGAL
from dr_ctl_lab.twin.doors import shut
from dr_ctl_lab.twin.faults import Fault, FaultKind, falsified
from dr_ctl_lab.twin.jolokia import NotARequest, Request, answer, failed, requests_in

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

ADMIN: Final = "admin"
MOST_FAILURES: Final = 4
BACK_OFF_S: Final = 1.0
OUT_OF_MEMORY: Final = "<html><body><h2>HTTP ERROR 500</h2><pre>java.lang.OutOfMemoryError</pre></body></html>"
UNAUTHORIZED: Final = "<html><body><h2>HTTP ERROR 401 Unauthorized</h2></body></html>"
_RESET: Final = struct.pack("ii", 1, 0)


class Hung(ConnectionError):
    """The connection is over without an answer."""


class Console:
    """Serves each connection on a thread of its own; `cut` ends them all."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._mine: dict[socket.socket, threading.Thread] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def welcome(self, sock: socket.socket, door: str) -> None:
        thread = threading.Thread(target=self._serve, args=(sock,), name=f"{door} of {self.host.broker.name}")
        thread.daemon = True
        self._mine[sock] = thread
        thread.start()

    def cut(self) -> list[threading.Thread]:
        """End every connection; gives the threads that are about to end."""
        mine, self._mine = self._mine, {}
        for sock in mine:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.host.broker.changed.notify_all()
        return list(mine.values())

    def live(self, sock: socket.socket) -> bool:
        return sock in self._mine

    def why_not_let_in(self, authorization: str | None) -> tuple[int, dict[str, str]] | None:
        """Refuse a login, and every login of a user who failed too often lately."""
        user, password = _login(authorization)
        newer = self.host.management.dialect.backs_off
        failures, since = self._failures.get(user, (0, 0.0))
        if newer and failures >= MOST_FAILURES and self.host.broker.clock.now_s() - since < BACK_OFF_S:
            return 429, {"Retry-After": "1"}
        if user == ADMIN and self.host.broker.users.get(user) == password:
            self._failures.pop(user, None)
            return None
        self._failures[user] = (failures + 1, self.host.broker.clock.now_s())
        if self.host.management.dialect.servlet:
            return 401, {"WWW-Authenticate": 'basic realm="ActiveMQRealm"'}
        return 403, {"Hawtio-Forbidden-Reason": "NONE"} if newer else {}

    def _serve(self, sock: socket.socket) -> None:
        try:
            _Handler(sock, sock.getpeername(), self)
        except OSError:
            pass  # the client, or the broker, is gone
        finally:
            with self.host.broker.lock:
                self._mine.pop(sock, None)
            shut(sock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for each other

    def __init__(self, sock: socket.socket, address: Any, console: Console) -> None:
        self._console, self._host, self._sock = console, console.host, sock
        super().__init__(sock, address, console)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._answer(b'{"type": "version"}')

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes) -> None:
        broker = self._host.broker
        with broker.lock:
            broker.changed.wait_for(lambda: not broker.frozen or not self._console.live(self._sock))
            refused = self._console.why_not_let_in(self.headers.get("Authorization"))
            sick = self._host.sick
        if sick:
            self._reply(500, OUT_OF_MEMORY, "text/html")
        elif refused is not None:
            page = UNAUTHORIZED if refused[0] == HTTPStatus.UNAUTHORIZED else ""
            self._reply(refused[0], page, "text/html" if page else "text/plain", refused[1])
        elif self.path.rstrip("/").removesuffix("/version") != self._host.management.dialect.path:
            dialect = self._host.management.dialect
            self._reply(404 if dialect.servlet else 200, dialect.page, "text/html")
        elif why := self._host.management.why_not_let_in(self.command, self._origin):
            self._reply(200, json.dumps(why), "text/plain;charset=utf-8")
        else:
            self._jolokia(body)

    @property
    def _origin(self) -> str | None:
        return self.headers.get("Origin") or self.headers.get("Referer")

    def _jolokia(self, body: bytes) -> None:
        try:
            document = json.loads(body)
        except ValueError:
            self._no_request("Invalid JSON request")
            return
        try:
            requests = requests_in(document)
        except NotARequest as error:
            self._no_request(str(error))
            return
        with self._host.broker.lock:
            struck = self._host.faults.due(requests)
        for fault, _ in struck:
            if self._instead(fault):
                return
        answers = self._done(requests, struck)
        for fault, _ in struck:
            if fault.kind is FaultKind.UNANSWERED:
                self._reset()
            elif fault.kind is FaultKind.DIES_AFTER:
                self._host.die(back_after_s=fault.back_after_s)
                raise Hung
        text = self._host.management.dialect.written(answers if isinstance(document, list) else answers[0])
        self._reply(200, text, "application/json")

    def _no_request(self, why: str) -> None:
        """Refuse the whole POST, as a page of the server, or in the way in which a request would be."""
        if self._host.management.dialect.refuses_in_json:
            self._reply(200, json.dumps(failed(ILLEGAL, why, 400)), "text/plain;charset=utf-8")
        else:
            self._reply(400, f"400 (Bad Request)\n\n{why}\n", "text/plain")

    def _instead(self, fault: Fault) -> bool:
        """Do what a fault does before the request is done; True where nothing more comes of it."""
        match fault.kind:
            case FaultKind.LATE | FaultKind.SILENT:
                self._wait(fault.seconds)
                if fault.kind is FaultKind.SILENT:
                    raise Hung
            case FaultKind.ERROR:
                self._reply(fault.status, f"<html><body>{fault.status}</body></html>", "text/html")
                return True
            case FaultKind.PAGE:
                self._reply(200, self._host.management.dialect.page, "text/html")
                return True
            case FaultKind.RESET:
                self._reset()
            case FaultKind.DIES_BEFORE:
                self._host.die(back_after_s=fault.back_after_s)
                raise Hung
            case FaultKind.CLOCK:
                self._host.broker.skew_ms += round(fault.seconds * 1000)
        return False

    def _done(self, requests: list[Request], struck: list[tuple[Fault, list[Request]]]) -> list[Any]:
        idle = [each for fault, mine in struck if fault.kind is FaultKind.IDLE for each in mine]
        lies = [(fault, mine) for fault, mine in struck if fault.kind is FaultKind.LIE]
        answers = []
        broker = self._host.broker
        for request in requests:
            # Singly, as a real console: another client's request may come in between.
            with broker.lock:
                if not self._console.live(self._sock):
                    raise Hung
                if any(request is each for each in idle):
                    reply: dict[str, Any] = {"value": None, "status": 200}
                else:
                    reply = answer(self._host.management, request)
                if request.changes:
                    self._host.note(request, reply["status"])
            for fault, mine in lies:
                if any(request is each for each in mine):
                    reply = falsified(reply, fault)
            answers.append(reply)
        return answers

    def _wait(self, seconds: float) -> None:
        broker = self._host.broker
        with broker.lock:
            outside_s = broker.clock.outside_s(seconds)
            broker.changed.wait_for(lambda: not self._console.live(self._sock), timeout=outside_s)
            if not self._console.live(self._sock):
                raise Hung

    def _reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        raise Hung

    def _reply(self, status: int, text: str, kind: str, headers: dict[str, str] | None = None) -> None:
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: the host records requests."""


def _login(authorization: str | None) -> tuple[str, str]:
    kind, _, login = (authorization or "").partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(login, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
