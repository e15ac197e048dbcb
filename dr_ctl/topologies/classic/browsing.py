"""Browses a queue over STOMP: every message with all that a client would be sent, and none of them taken."""

import math
import secrets
from collections.abc import Iterator
from typing import Final

from dr_ctl.core.errors import BrokerError, LoginRefused, TimedOut
from dr_ctl.core.system import growing_s
from dr_ctl.stomp_io.address import Refused
from dr_ctl.stomp_io.client import probe
from dr_ctl.stomp_io.connection import Connection, Frame
from dr_ctl.topologies.common.access import Gate

OWN_CLIENT: Final = "dr-ctl-"
"""How the client ids of dr-ctl's own begin: whoever else comes in by a connector of dr-ctl's is a client."""
GREETING_S: Final = 5.0
SILENT_S: Final = 20.0


def connected(gate: Gate, *, beats: str | None = None, client: str = OWN_CLIENT) -> Connection:
    """A session at that listener, of a client whose id begins so; raises `BrokerError` where it does not open."""
    headers = {"client-id": f"{client}{secrets.token_hex(6)}", **({"heart-beat": beats} if beats is not None else {})}
    greeting, connection = probe(gate.address, gate.login, gate.tls, timeout_s=GREETING_S, headers=headers)
    if isinstance(greeting, Refused):
        raise LoginRefused(f"{gate.address}: the login of {gate.login.user} was refused: {greeting.because}")
    if connection is None:
        raise BrokerError(getattr(greeting, "because", f"{gate.address}: no answer to the login"))
    return connection


def browsed(gate: Gate, queue: str, *, client: str = OWN_CLIENT) -> Iterator[Frame]:
    """The messages that a browse shows: the whole queue, or as many as the broker's `maxBrowsePageSize` allows. Raises
    `BrokerError` where the browse does not come to its end."""
    connection = connected(gate, client=client)
    try:
        yield from browse(connection, queue, "browse")
    finally:
        connection.close()


def browse(session: Connection, queue: str, name: str) -> Iterator[Frame]:
    """The same by a session that is used for several browses; `name` is another one for each."""
    session.stomp.subscribe(f"/queue/{queue}", name, "auto", {"browser": "true"})
    heard = growing_s()
    while growing_s() - heard < SILENT_S:
        for frame in session.receive(1.0):
            if frame.headers.get("subscription") != name:
                continue
            heard = growing_s()
            if frame.headers.get("browser") == "end":
                session.stomp.unsubscribe(name)
                return
            if frame.cmd == "MESSAGE":
                yield frame
        # The broker sends the end by itself once all before is acknowledged, which a silent receiver puts off for
        # 40 ms; whatever is sent now takes that acknowledgement along.
        session.beat(every_s=0.0, silent_s=math.inf)
    raise TimedOut(f"{session.address}: a browse of {queue} did not come to its end")
