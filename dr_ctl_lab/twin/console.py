"""The console of one broker: answers HTTP requests as the real one does, with its login and its refusals."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.bean import ILLEGAL
from dr_ctl_lab.twin.faults import Fault, FaultKind, falsified
from dr_ctl_lab.twin.jolokia import NotARequest, Request, answer, failed, requests_in

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

ADMIN: Final = "admin"
MOST_FAILURES: Final = 4
BACK_OFF_S: Final = 1.0
OUT_OF_MEMORY: Final = "<html><body><h2>HTTP ERROR 500</h2><pre>java.lang.OutOfMemoryError</pre></body></html>"
UNAUTHORIZED: Final = "<html><body><h2>HTTP ERROR 401 Unauthorized</h2></body></html>"


class NoResponse(ConnectionError):
    """The connection ends without an answer."""


class Reset(NoResponse):
    """The connection is reset without an answer."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(eq=False, slots=True)
class ConsoleConnection:
    """A connection to the console; not `live` once the broker has cut it."""

    live: bool = True


@dataclass(eq=False)
class Console:
    host: Host
    _connections: set[ConsoleConnection] = field(default_factory=set)
    _failures: dict[str, tuple[int, float]] = field(default_factory=dict)

    def connect(self) -> ConsoleConnection:
        """Register a new connection."""
        connection = ConsoleConnection()
        self._connections.add(connection)
        return connection

    def disconnect(self, connection: ConsoleConnection) -> None:
        self._connections.discard(connection)

    def cut(self) -> None:
        """End every connection."""
        for connection in self._connections:
            connection.live = False
        self._connections.clear()
        self.host.broker.changed.notify_all()

    def login_refusal(self, authorization: str | None) -> tuple[int, dict[str, str]] | None:
        """The status and headers that refuse a login; None where it is right, and the user did not fail too often."""
        user, password = _login(authorization)
        backs_off = self.host.management.dialect.backs_off
        failures, since = self._failures.get(user, (0, 0.0))
        if backs_off and failures >= MOST_FAILURES and self.host.broker.clock.now_s() - since < BACK_OFF_S:
            return 429, {"Retry-After": "1"}
        if user == ADMIN and self.host.broker.users.get(user) == password:
            self._failures.pop(user, None)
            return None
        self._failures[user] = (failures + 1, self.host.broker.clock.now_s())
        if self.host.management.dialect.servlet:
            return 401, {"WWW-Authenticate": 'basic realm="ActiveMQRealm"'}
        return 403, {"Hawtio-Forbidden-Reason": "NONE"} if backs_off else {}

    def respond(self, request: HttpRequest, connection: ConsoleConnection) -> HttpResponse:
        """Answer a request. Raises NoResponse where no answer comes."""
        host, broker = self.host, self.host.broker
        with broker.lock:
            broker.changed.wait_for(lambda: not host.frozen or not connection.live)
            refused = self.login_refusal(request.headers.get("authorization"))
            sick = host.sick
        dialect = host.management.dialect
        if sick:
            return _response(500, OUT_OF_MEMORY, "text/html")
        if refused is not None:
            response = UNAUTHORIZED if refused[0] == HTTPStatus.UNAUTHORIZED else ""
            return _response(refused[0], response, "text/html" if response else "text/plain", refused[1])
        if request.path.rstrip("/").removesuffix("/version") != dialect.path:
            return _response(404 if dialect.servlet else 200, dialect.page, "text/html")
        origin = request.headers.get("origin") or request.headers.get("referer")
        if refusal := host.management.request_refusal(request.method, origin):
            return _response(200, json.dumps(refusal), "text/plain;charset=utf-8")
        return self._jolokia(b'{"type": "version"}' if request.method == "GET" else request.body, connection)

    def _jolokia(self, body: bytes, connection: ConsoleConnection) -> HttpResponse:
        try:
            document = json.loads(body)
        except ValueError:
            return self._no_request("Invalid JSON request")
        try:
            requests = requests_in(document)
        except NotARequest as error:
            return self._no_request(str(error))
        with self.host.broker.lock:
            strikes = self.host.faults.due(requests)
        for fault, _ in strikes:
            if (response := self._apply_before(fault, connection)) is not None:
                return response
        answers = self._done(requests, strikes, connection)
        for fault, _ in strikes:
            if fault.kind is FaultKind.UNANSWERED:
                raise Reset
            if fault.kind is FaultKind.DIES_AFTER:
                self.host.die(back_after_s=fault.back_after_s)
                raise NoResponse
        text = self.host.management.dialect.written(answers if isinstance(document, list) else answers[0])
        return _response(200, text, "application/json")

    def _no_request(self, reason: str) -> HttpResponse:
        """Refuse the whole POST: as a page of the server, or in JSON."""
        if self.host.management.dialect.refuses_in_json:
            return _response(200, json.dumps(failed(ILLEGAL, reason, 400)), "text/plain;charset=utf-8")
        return _response(400, f"400 (Bad Request)\n\n{reason}\n", "text/plain")

    def _apply_before(self, fault: Fault, connection: ConsoleConnection) -> HttpResponse | None:
        """Apply a fault before the requests are done; the response that replaces their answer, if any."""
        match fault.kind:
            case FaultKind.LATE | FaultKind.SILENT:
                self._wait(fault.seconds, connection)
                if fault.kind is FaultKind.SILENT:
                    raise NoResponse
            case FaultKind.ERROR:
                return _response(fault.status, f"<html><body>{fault.status}</body></html>", "text/html")
            case FaultKind.PAGE:
                return _response(200, self.host.management.dialect.page, "text/html")
            case FaultKind.RESET:
                raise Reset
            case FaultKind.DIES_BEFORE:
                self.host.die(back_after_s=fault.back_after_s)
                raise NoResponse
            case FaultKind.CLOCK:
                self.host.broker.skew_ms += round(fault.seconds * 1000)
        return None

    def _done(
        self, requests: list[Request], strikes: list[tuple[Fault, list[Request]]], connection: ConsoleConnection
    ) -> list[Any]:
        ignored = [item for fault, items in strikes if fault.kind is FaultKind.NOOP for item in items]
        false = [(fault, items) for fault, items in strikes if fault.kind is FaultKind.WRONG_VALUE]
        answers = []
        broker = self.host.broker
        for request in requests:
            # One by one, as a real console does: another client's request may come in between.
            with broker.lock:
                if not connection.live:
                    raise NoResponse
                if any(request is item for item in ignored):
                    reply: dict[str, Any] = {"value": None, "status": 200}
                else:
                    reply = answer(self.host.management, request)
                if request.changes:
                    self.host.record_change(request, reply["status"])
            for fault, items in false:
                if any(request is item for item in items):
                    reply = falsified(reply, fault)
            answers.append(reply)
        return answers

    def _wait(self, seconds: float, connection: ConsoleConnection) -> None:
        broker = self.host.broker
        with broker.lock:
            broker.changed.wait_for(lambda: not connection.live, timeout=broker.clock.outside_s(seconds))
            if not connection.live:
                raise NoResponse


def _response(status: int, text: str, kind: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(status, {"Content-Type": kind, **(headers or {})}, text.encode())


def _login(authorization: str | None) -> tuple[str, str]:
    kind, _, login = (authorization or "").partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(login, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
