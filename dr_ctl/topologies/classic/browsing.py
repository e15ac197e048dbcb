"""Browses a queue over STOMP: every message with all that a client would be sent, and none of them taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from dr_ctl.core.errors import BrokerError, LoginRefused, TimedOut
from dr_ctl.stomp_io.answers import Refused
from dr_ctl.stomp_io.connection import Connection, knock
from dr_ctl.stomp_io.frames import Frame
from dr_ctl.topologies.common.access import Gate

GREETING_S: Final = 5.0
SILENT_S: Final = 20.0


def connected(gate: Gate, *, beats: str | None = None, client: str | None = None) -> Connection:
    """A session at that door, of that client id; raises `BrokerError` where it does not open."""
    optional = {"heart-beat": beats, "client-id": client}
    headers = {name: each for name, each in optional.items() if each is not None}
    greeting, connection = knock(gate.address, gate.login, gate.tls, timeout_s=GREETING_S, headers=headers)
    if isinstance(greeting, Refused):
        raise LoginRefused(f"{gate.address}: the login of {gate.login.user} was refused: {greeting.because}")
    if connection is None:
        raise BrokerError(getattr(greeting, "because", f"{gate.address}: no greeting"))
    return connection


def browsed(gate: Gate, queue: str, *, client: str | None = None) -> Iterator[Frame]:
    """The messages that a browse shows: the whole queue, or as many as the broker's `maxBrowsePageSize` allows. Raises
    `BrokerError` where the browse does not come to its end."""
    connection = connected(gate, client=client)
    try:
        connection.stomp.subscribe(f"/queue/{queue}", "browse", "auto", {"browser": "true"})
        heard = time.monotonic()
        while time.monotonic() - heard < SILENT_S:
            for frame in connection.receive(1.0):
                heard = time.monotonic()
                if frame.headers.get("browser") == "end":
                    return
                if frame.cmd == "MESSAGE":
                    yield frame
    finally:
        connection.close()
    raise TimedOut(f"{gate.address}: a browse of {queue} did not come to its end")
