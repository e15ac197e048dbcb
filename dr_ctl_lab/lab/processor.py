"""The processor of a site: writes the ids that the peer's consumers processed into the site's store.

Run as `python -m dr_ctl_lab.lab.processor --port P --user U --password-file F --queue Q --store S` until SIGTERM.
Notifications come from its own site's broker; those on disk are acknowledged. A broker that comes back is dialled anew.
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import Connection, ConnectionLost, probe
from dr_ctl_lab.lab.ids import QUEUE_HEADER, IdStore, Where

if TYPE_CHECKING:
    from dr_ctl.stomp_io.client import Frame

WINDOW_BYTES = str(256 * 1024)
LOGIN_S, RETRY_S, TURN_S = 2.0, 0.1, 0.2
BEAT_S, SILENT_S = 4.0, 4.0
HEART_BEATS = {"heart-beat": "10000,1000"}


def process(address: Address, login: Login, queue: str, store: IdStore, stop: threading.Event) -> None:
    """Take notifications until `stop` is set, over as many connections as it takes."""
    while not stop.is_set():
        _, connection = probe(address, login, None, timeout_s=LOGIN_S, headers=HEART_BEATS)
        if connection is not None:
            try:
                _take(connection, queue, store, stop)
                connection.close()
            except ConnectionLost:
                connection.close(politely=False)
        stop.wait(RETRY_S)


def _take(connection: Connection, queue: str, store: IdStore, stop: threading.Event) -> None:
    headers = {"subscription-type": "ANYCAST", "consumer-window-size": WINDOW_BYTES}
    connection.stomp.subscribe(queue, "ids", "client", headers)
    while not stop.is_set():
        came = [frame for frame in connection.receive(TURN_S) if frame.cmd == "MESSAGE"]
        if came:
            store.add((_told(frame) for frame in came), Where.PEER)
            connection.stomp.ack(came[-1].headers["ack"])  # and with it all before it
        connection.beat(every_s=BEAT_S, silent_s=SILENT_S)


def _told(frame: Frame) -> tuple[str, str]:
    body = frame.body.decode() if isinstance(frame.body, bytes) else str(frame.body)
    return frame.headers.get(QUEUE_HEADER, ""), body


def main() -> None:
    parser = argparse.ArgumentParser(prog="dr_ctl_lab.lab.processor")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password-file", type=Path, required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--store", type=Path, required=True)
    given = parser.parse_args()
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    login = Login(given.user, given.password_file.read_text(encoding="utf-8").strip())
    process(Address("127.0.0.1", given.port), login, given.queue, IdStore(given.store), stop)


if __name__ == "__main__":
    main()
