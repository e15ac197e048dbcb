"""The console of one broker: a function from a request of HTTP to its answer, with a login before Jolokia, as the real
one answers, its refusals included."""

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


class Hung(ConnectionError):
    """The connection is over without an answer."""


class Reset(Hung):
    """And not by an end, but by a reset."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. The names of the headers are in lower letters."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(eq=False, slots=True)
class Visit:
    """A connection to the console; not `live` once the broker has cut it."""

    live: bool = True


@dataclass(eq=False)
class Console:
    host: Host
    _visits: set[Visit] = field(default_factory=set)
    _failures: dict[str, tuple[int, float]] = field(default_factory=dict)

    def visited(self) -> Visit:
        """Somebody has connected."""
        visit = Visit()
        self._visits.add(visit)
        return visit

    def left(self, visit: Visit) -> None:
        self._visits.discard(visit)

    def cut(self) -> None:
        """End every connection."""
        for visit in self._visits:
            visit.live = False
        self._visits.clear()
        self.host.broker.changed.notify_all()

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

    def respond(self, asked: Asked, visit: Visit) -> Page:
        """Answer a request. Raises Hung where no answer comes."""
        host, broker = self.host, self.host.broker
        with broker.lock:
            broker.changed.wait_for(lambda: not host.frozen or not visit.live)
            refused = self.why_not_let_in(asked.headers.get("authorization"))
            sick = host.sick
        dialect = host.management.dialect
        if sick:
            return _page(500, OUT_OF_MEMORY, "text/html")
        if refused is not None:
            page = UNAUTHORIZED if refused[0] == HTTPStatus.UNAUTHORIZED else ""
            return _page(refused[0], page, "text/html" if page else "text/plain", refused[1])
        if asked.path.rstrip("/").removesuffix("/version") != dialect.path:
            return _page(404 if dialect.servlet else 200, dialect.page, "text/html")
        origin = asked.headers.get("origin") or asked.headers.get("referer")
        if why := host.management.why_not_let_in(asked.method, origin):
            return _page(200, json.dumps(why), "text/plain;charset=utf-8")
        return self._jolokia(b'{"type": "version"}' if asked.method == "GET" else asked.body, visit)

    def _jolokia(self, body: bytes, visit: Visit) -> Page:
        try:
            document = json.loads(body)
        except ValueError:
            return self._no_request("Invalid JSON request")
        try:
            requests = requests_in(document)
        except NotARequest as error:
            return self._no_request(str(error))
        with self.host.broker.lock:
            struck = self.host.faults.due(requests)
        for fault, _ in struck:
            if (page := self._instead(fault, visit)) is not None:
                return page
        answers = self._done(requests, struck, visit)
        for fault, _ in struck:
            if fault.kind is FaultKind.UNANSWERED:
                raise Reset
            if fault.kind is FaultKind.DIES_AFTER:
                self.host.die(back_after_s=fault.back_after_s)
                raise Hung
        text = self.host.management.dialect.written(answers if isinstance(document, list) else answers[0])
        return _page(200, text, "application/json")

    def _no_request(self, why: str) -> Page:
        """Refuse the whole POST, as a page of the server, or in the way in which a request would be."""
        if self.host.management.dialect.refuses_in_json:
            return _page(200, json.dumps(failed(ILLEGAL, why, 400)), "text/plain;charset=utf-8")
        return _page(400, f"400 (Bad Request)\n\n{why}\n", "text/plain")

    def _instead(self, fault: Fault, visit: Visit) -> Page | None:
        """Do what a fault does before the request is done; the page where nothing more comes of it."""
        match fault.kind:
            case FaultKind.LATE | FaultKind.SILENT:
                self._wait(fault.seconds, visit)
                if fault.kind is FaultKind.SILENT:
                    raise Hung
            case FaultKind.ERROR:
                return _page(fault.status, f"<html><body>{fault.status}</body></html>", "text/html")
            case FaultKind.PAGE:
                return _page(200, self.host.management.dialect.page, "text/html")
            case FaultKind.RESET:
                raise Reset
            case FaultKind.DIES_BEFORE:
                self.host.die(back_after_s=fault.back_after_s)
                raise Hung
            case FaultKind.CLOCK:
                self.host.broker.skew_ms += round(fault.seconds * 1000)
        return None

    def _done(self, requests: list[Request], struck: list[tuple[Fault, list[Request]]], visit: Visit) -> list[Any]:
        idle = [item for fault, value in struck if fault.kind is FaultKind.IDLE for item in value]
        lies = [(fault, value) for fault, value in struck if fault.kind is FaultKind.LIE]
        answers = []
        broker = self.host.broker
        for request in requests:
            # Singly, as a real console: another client's request may come in between.
            with broker.lock:
                if not visit.live:
                    raise Hung
                if any(request is item for item in idle):
                    reply: dict[str, Any] = {"value": None, "status": 200}
                else:
                    reply = answer(self.host.management, request)
                if request.changes:
                    self.host.note(request, reply["status"])
            for fault, lie in lies:
                if any(request is item for item in lie):
                    reply = falsified(reply, fault)
            answers.append(reply)
        return answers

    def _wait(self, seconds: float, visit: Visit) -> None:
        broker = self.host.broker
        with broker.lock:
            broker.changed.wait_for(lambda: not visit.live, timeout=broker.clock.outside_s(seconds))
            if not visit.live:
                raise Hung


def _page(status: int, text: str, kind: str, headers: Mapping[str, str] | None = None) -> Page:
    return Page(status, {"Content-Type": kind, **(headers or {})}, text.encode())


def _login(authorization: str | None) -> tuple[str, str]:
    kind, _, login = (authorization or "").partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(login, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
