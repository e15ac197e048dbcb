"""Deletes messages by id as a consumer: takes all of a queue in view, acknowledges those, gives the rest back.

Never by a selector: a broker looks for matching messages in the first page of a deep queue only, and would find none.
"""

from __future__ import annotations

import time
from typing import Final

from dr_ctl.core.errors import TimedOut
from dr_ctl.stomp_io.connection import Connection
from dr_ctl.topologies.classic.browsing import connected
from dr_ctl.topologies.common.access import Gate

MARGIN: Final = 1000
QUIET_S: Final = 1.0
RECEIPT_S: Final = 10.0


def picked(gate: Gate, queue: str, ids: frozenset[str], depth: int) -> int:
    """Acknowledge these of a queue that is so deep; returns how many were there. A message given back keeps its place,
    marked as redelivered. Raises `BrokerError`."""
    connection = connected(gate)
    try:
        prefetch = {
            "activemq.prefetchSize": str(depth + MARGIN)
        }  # get all at once: a message held back would hide the rest
        connection.stomp.subscribe(f"/queue/{queue}", "pick", "client-individual", prefetch)
        return _picked(connection, ids, depth)
    finally:
        connection.close()


def _picked(connection: Connection, ids: frozenset[str], depth: int) -> int:
    found, seen, heard = 0, 0, time.monotonic()
    while found < len(ids) and seen < depth and time.monotonic() - heard < QUIET_S:
        for frame in connection.receive(0.2):
            if frame.cmd != "MESSAGE":
                continue
            seen, heard = seen + 1, time.monotonic()
            if frame.headers["message-id"] in ids:
                connection.stomp.ack(frame.headers["ack"])
                found += 1
    connection.stomp.unsubscribe("pick", receipt="done")
    until = time.monotonic() + RECEIPT_S
    while time.monotonic() < until:
        if any(frame.cmd == "RECEIPT" for frame in connection.receive(0.2)):
            return found
    raise TimedOut(f"{connection.address}: acknowledgements were not confirmed")
