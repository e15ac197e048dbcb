"""A client that works message by message, with transactions where it is asked to, and notes it in a ledger."""

import itertools
import uuid
from collections.abc import Callable
from typing import Self

from dr_ctl.core.clock import growing_s
from dr_ctl.stomp_io.connection import Connection, ConnectionLost
from dr_ctl.stomp_io.dialect import ARTEMIS, Dialect
from dr_ctl.stomp_io.frames import Frame
from dr_ctl.stomp_io.knock import knock
from dr_ctl_lab.lab.clients.client import ID_HEADER
from dr_ctl_lab.lab.clients.stomp import identify
from dr_ctl_lab.lab.ledger import Event, Ledger
from tests.broker.driving import Stage

WITHIN_S = 1.0


class Client:
    """One connection. What is left open stays so until `close`."""

    def __init__(self, site: str, connection: Connection, dialect: Dialect, ledger: Ledger) -> None:
        self._site, self._connection, self._dialect, self._ledger = site, connection, dialect, ledger
        self._receipts = itertools.count(1)
        self._frames: list[Frame] = []

    @classmethod
    def into(cls, stage: Stage, ledger: Ledger) -> Self | None:
        """Whichever site lets it in; None where none does."""
        target = stage.target()
        for site, address in target.sites:
            _, connection = knock(address, target.login, None, timeout_s=0.5)
            if connection is not None:
                return cls(site, connection, target.dialect, ledger)
        return None

    def close(self) -> None:
        self._connection.close(politely=False)

    def send(self, queue: str, count: int, end: str, priority: str) -> None:
        """Send, at once or in a transaction; `open` leaves it open, and then nobody was promised anything."""
        idents = [f"single-{uuid.uuid4().hex[:12]}" for _ in range(count)]
        try:
            inside = self._begun(end)
            for ident in idents:
                self._ledger.attempt(queue, ident)
                headers = {**self._dialect.sent, **inside, "persistent": "true", ID_HEADER: ident, "priority": priority}
                self._confirmed("SEND", {**headers, "destination": self._dialect.queue(queue)}, "x" * 20)
                if not inside:
                    self._ledger.record(Event.SENT, queue, ident, self._site)
            if self._ended(end, inside):
                for ident in idents:
                    self._ledger.record(Event.SENT, queue, ident, self._site)
        except (ConnectionLost, TimeoutError):
            for ident in idents:
                self._ledger.record(Event.SEND_IN_DOUBT, queue, ident, self._site)

    def take(self, queue: str, count: int, end: str) -> None:
        """Take what comes; `hold` acknowledges nothing, `refuse` says that it cannot be worked on."""
        had: list[Frame] = []
        try:
            end = (
                "now" if self._dialect is ARTEMIS and end in ("commit", "abort", "open") else end
            )  # it acknowledges at once
            headers = {**self._dialect.subscribing(count * 256), "ack": "client-individual", "id": "s"}
            self._confirmed("SUBSCRIBE", {**headers, "destination": self._dialect.queue(queue)})
            inside = self._begun(end)
            for _ in range(count):
                frame = self._frame(lambda each: each.cmd == "MESSAGE", 0.15)
                if frame is None or end == "hold":
                    break
                had.append(frame)
                command = "NACK" if end == "refuse" else "ACK"
                if end == "now":
                    self._ledger.record(Event.RECEIVED, queue, identify(frame), self._site)
                self._confirmed(command, {**inside, "id": frame.headers["ack"]})
                if end == "now":
                    self._ledger.record(Event.CONSUMED, queue, identify(frame), self._site)
            if end == "commit":
                for frame in had:  # the work is done before
                    self._ledger.record(Event.RECEIVED, queue, identify(frame), self._site)
            if self._ended(end, inside):
                for frame in had:
                    self._ledger.record(Event.CONSUMED, queue, identify(frame), self._site)
        except (ConnectionLost, TimeoutError):
            return  # the last of them may come again
        if end in ("now", "commit", "abort", "refuse"):
            self.close()

    def _begun(self, end: str) -> dict[str, str]:
        if end not in ("commit", "abort", "open"):
            return {}
        self._confirmed("BEGIN", {"transaction": "t"})
        return {"transaction": "t"}

    def _ended(self, end: str, inside: dict[str, str]) -> bool:
        if inside and end != "open":
            self._confirmed(end.upper(), inside)
        return end == "commit"

    def _confirmed(self, command: str, headers: dict[str, str], body: str = "") -> None:
        receipt = f"r-{next(self._receipts)}"
        self._connection.stomp.send_frame(command, {**headers, "receipt": receipt}, body)
        if self._frame(lambda each: each.headers.get("receipt-id") == receipt, WITHIN_S) is None:
            raise TimeoutError(f"no receipt of {command} in time")

    def _frame(self, wanted: Callable[[Frame], bool], within_s: float) -> Frame | None:
        end = growing_s() + within_s
        while True:
            for each in self._frames:
                if wanted(each):
                    self._frames.remove(each)
                    return each
            if growing_s() > end:
                return None
            self._frames += self._connection.receive(0.02)
