"""Puts a few durable messages into a queue as a producer does, and takes these very ones as a consumer does."""

from collections.abc import Callable, Mapping
from typing import Final

from dr_ctl.core.clock import growing_s
from dr_ctl.stomp_io.address import Address, Login, TlsFiles
from dr_ctl.stomp_io.answers import Failed, Passed, RoundTrip
from dr_ctl.stomp_io.client import PROBE_HEADER, Inbox, receipt
from dr_ctl.stomp_io.connection import Connection, ConnectionLost
from dr_ctl.stomp_io.probe import probe

_QUEUE: Final[Mapping[str, str]] = {"destination-type": "ANYCAST", "subscription-type": "ANYCAST"}


def put(
    address: Address, login: Login | None, tls: TlsFiles | None, *, queue: str, token: str, count: int, timeout_s: float
) -> RoundTrip:
    """Send `count` durable messages that bear `token`; passed once the broker has confirmed each."""

    def work(connection: Connection, until: float) -> None:
        inbox = Inbox(connection, until)
        for number in range(count):
            headers = {**_QUEUE, PROBE_HEADER: token, "persistent": "true", "receipt": f"put-{number}"}
            connection.stomp.send(queue, f"dr-ctl rehearsal {number}", headers=headers)
        for number in range(count):
            inbox.wait(receipt(f"put-{number}"), f"message {number + 1} of {count} was not confirmed")

    return _at_the_listener(address, login, tls, timeout_s, work)


def take(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    *,
    queue: str,
    token: str | None,
    count: int,
    timeout_s: float,
) -> RoundTrip:
    """Receive and acknowledge `count` messages that bear `token`, without one that bear any; passed once the broker has
    confirmed each acknowledgement."""

    def work(connection: Connection, until: float) -> None:
        inbox = Inbox(connection, until)
        which = f"{PROBE_HEADER} = '{token}'" if token is not None else f"{PROBE_HEADER} IS NOT NULL"
        selecting = {**_QUEUE, "selector": which, "receipt": "subscribed"}
        connection.stomp.subscribe(queue, "rehearsal", "client-individual", selecting)
        for number in range(count):
            message = inbox.wait(
                lambda frame: frame.cmd == "MESSAGE" and token in (None, frame.headers.get(PROBE_HEADER)),
                f"message {number + 1} of {count} did not come",
            )
            connection.stomp.ack(message.headers["ack"], receipt=f"taken-{number}")
        for number in range(count):
            inbox.wait(receipt(f"taken-{number}"), f"acknowledgement {number + 1} of {count} was not confirmed")

    return _at_the_listener(address, login, tls, timeout_s, work)


def _at_the_listener(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    timeout_s: float,
    work: Callable[[Connection, float], None],
) -> RoundTrip:
    began = growing_s()
    greeting, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is None:
        return Failed(getattr(greeting, "because", "no connection"))
    try:
        work(connection, began + timeout_s)
    except ConnectionLost as error:
        return Failed(str(error))
    except TimeoutError as error:
        return Failed(f"{address}: {error} within {timeout_s:g} s")
    finally:
        connection.close()
    return Passed(growing_s() - began)
