"""Tests a STOMP port: whether clients are let in, and whether a message passes.

A test answers with a variant; a network fault is an answer, not an exception.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from dr_ctl.core.clock import growing_s
from dr_ctl.stomp_io.address import Address, Login, TlsFiles
from dr_ctl.stomp_io.answers import Failed, Greeting, Passed, RoundTrip
from dr_ctl.stomp_io.connection import Connection, ConnectionLost
from dr_ctl.stomp_io.frames import Frame
from dr_ctl.stomp_io.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable

PROBE_HEADER = "dr_ctl_probe"


def greet(address: Address, login: Login | None, tls: TlsFiles | None, *, timeout_s: float) -> Greeting:
    """Make one attempt to be let in. A closed port answers in about a millisecond; no retry is made."""
    greeting, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is not None:
        connection.close()
    return greeting


def round_trip(
    address: Address, login: Login | None, tls: TlsFiles | None, *, queue: str, body: str, timeout_s: float
) -> RoundTrip:
    """Send one non-durable message to `queue`, receive that very message and acknowledge it.

    Other messages of the queue are neither seen nor held: the subscription selects by the probe's own id.
    """
    began = growing_s()
    until = began + timeout_s
    greeting, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is None:
        return Failed(getattr(greeting, "because", "no connection"))
    token = uuid.uuid4().hex
    try:
        _send_and_receive(connection, queue, body, token, until)
    except ConnectionLost as error:
        return Failed(str(error))
    except TimeoutError as error:
        return Failed(f"{address}: {error} within {timeout_s:g} s")
    finally:
        connection.close()
    return Passed(growing_s() - began)


def _send_and_receive(connection: Connection, queue: str, body: str, token: str, until: float) -> None:
    # Subscribed first: the message then never lies in the queue without somebody there to take it.
    connection.stomp.subscribe(
        queue,
        "probe",
        "client-individual",
        {"subscription-type": "ANYCAST", "selector": f"{PROBE_HEADER} = '{token}'", "receipt": "subscribed"},
    )
    connection.stomp.send(queue, body, headers={"destination-type": "ANYCAST", PROBE_HEADER: token, "receipt": "sent"})
    inbox = Inbox(connection, until)
    inbox.wait(receipt("subscribed"), "the subscription was not confirmed")
    inbox.wait(receipt("sent"), "the message was not confirmed")
    message = inbox.wait(
        lambda frame: frame.cmd == "MESSAGE" and frame.headers.get(PROBE_HEADER) == token,
        "the message did not come back",
    )
    connection.stomp.ack(message.headers["ack"], receipt="acked")
    inbox.wait(receipt("acked"), "the acknowledgement was not confirmed")


class Inbox:
    """Frames in the order of arrival; callers wait for the frame they want."""

    def __init__(self, connection: Connection, until: float) -> None:
        self._connection = connection
        self._until = until
        self._frames: list[Frame] = []

    def wait(self, wanted: Callable[[Frame], bool], missing: str) -> Frame:
        while True:
            for frame in self._frames:
                if wanted(frame):
                    self._frames.remove(frame)
                    return frame
            left = self._until - growing_s()
            if left <= 0:
                raise TimeoutError(missing)
            self._frames += self._connection.receive(left)


def receipt(name: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.cmd == "RECEIPT" and frame.headers.get("receipt-id") == name
