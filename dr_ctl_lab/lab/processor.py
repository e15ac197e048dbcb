"""The processor of a site: it stores the ids that the peer's consumers have processed.

Run as `python -m dr_ctl_lab.lab.processor --port P --user U --password-file F --queue Q --store S` until SIGTERM.
It consumes notifications at its site's broker, acknowledges those on disk, and reconnects after a break.
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import Connection, ConnectionLost, probe
from dr_ctl_lab.lab.ids import QUEUE_HEADER, IdStore, ProcessedAt

if TYPE_CHECKING:
    from dr_ctl.stomp_io.client import Frame

WINDOW_BYTES = str(256 * 1024)
LOGIN_S, RETRY_S, TURN_S = 2.0, 0.1, 0.2
BEAT_S, SILENT_S = 4.0, 4.0
HEART_BEATS = {"heart-beat": "10000,1000"}


def process(address: Address, login: Login, queue: str, store: IdStore, stop: threading.Event) -> None:
    """Consume notifications until `stop` is set; reconnect after a break."""
    while not stop.is_set():
        _, connection = probe(address, login, None, timeout_s=LOGIN_S, headers=HEART_BEATS)
        if connection is not None:
            try:
                _consume(connection, queue, store, stop)
                connection.close()
            except ConnectionLost:
                connection.close(politely=False)
        stop.wait(RETRY_S)


def _consume(connection: Connection, queue: str, store: IdStore, stop: threading.Event) -> None:
    headers = {"subscription-type": "ANYCAST", "consumer-window-size": WINDOW_BYTES}
    connection.stomp.subscribe(queue, "ids", "client", headers)
    while not stop.is_set():
        notifications = [frame for frame in connection.receive(TURN_S) if frame.cmd == "MESSAGE"]
        if notifications:
            store.add((_parsed(frame) for frame in notifications), ProcessedAt.PEER)
            connection.stomp.ack(notifications[-1].headers["ack"])  # acknowledges all earlier ones too
        connection.beat(every_s=BEAT_S, silent_s=SILENT_S)


def _parsed(frame: Frame) -> tuple[str, str]:
    body = frame.body.decode() if isinstance(frame.body, bytes) else str(frame.body)
    return frame.headers.get(QUEUE_HEADER, ""), body


def main() -> None:
    parser = argparse.ArgumentParser(prog="dr_ctl_lab.lab.processor")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password-file", type=Path, required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--store", type=Path, required=True)
    arguments = parser.parse_args()
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    login = Login(arguments.user, arguments.password_file.read_text(encoding="utf-8").strip())
    process(Address("127.0.0.1", arguments.port), login, arguments.queue, IdStore(arguments.store), stop)


if __name__ == "__main__":
    main()
