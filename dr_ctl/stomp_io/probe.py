"""A knock at a clients' port, and what the answer is: let in, refused by a word, closed, or silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dr_ctl.core.clock import growing_s
from dr_ctl.stomp_io.answers import Closed, Connected, Greeting, Refused, Silent
from dr_ctl.stomp_io.connection import Connection, said
from dr_ctl.stomp_io.frames import Frame, FrameReader, NotStomp
from dr_ctl.stomp_io.stream import connected

# Only after `frames`, which sets what keeps stomp.py from looking this machine's name up.
from stomp.utils import convert_frame, pack  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dr_ctl.core.system import Stream
    from dr_ctl.stomp_io.address import Address, Login, TlsFiles


def probe(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
) -> tuple[Greeting, Connection | None]:
    """Knock once and wait for the answer; the connection is there exactly when it is Connected. Never raises."""
    until = growing_s() + timeout_s
    try:
        stream = connected(address, tls, within_s=timeout_s)
    except ConnectionRefusedError as error:
        return Closed(f"{address}: {error.strerror or error}"), None
    except OSError as error:
        return Silent(f"{address}: {error.strerror or error}"), None
    reader = FrameReader()
    try:
        stream.send(_hello(address, login, headers or {}), timeout_s)
        frames = _first_frames(stream, reader, until)
    except OSError as error:
        greeting: Greeting = Silent(f"{address}: {error.strerror or error}")
    except NotStomp as error:
        greeting = Silent(str(error))
    else:
        if frames is None:
            greeting = Silent(f"{address}: no greeting within {timeout_s:g} s")
        else:
            greeting = _greeting(address, frames[0])
            if isinstance(greeting, Connected):
                return greeting, Connection(address, stream, reader, frames[1:])
    stream.close()
    return greeting, None


def _first_frames(stream: Stream, reader: FrameReader, until: float) -> list[Frame] | None:
    """What came with the first whole frame; None where none came in time."""
    while (data := stream.receive(until - growing_s())) is not None:
        if not data:
            raise ConnectionResetError("closed before a greeting")
        if frames := reader.feed(data):
            return frames
    return None


def _greeting(address: Address, frame: Frame) -> Greeting:
    if frame.cmd == "CONNECTED":
        return Connected(frame.headers.get("server", ""), frame.headers.get("version", "1.0"))
    if frame.cmd == "ERROR":
        return Refused(said(frame))
    return Silent(f"{address}: a {frame.cmd} frame instead of a greeting")


def _hello(address: Address, login: Login | None, headers: Mapping[str, str]) -> bytes:
    who = {} if login is None else {"login": login.user, "passcode": login.password}
    fields = {"accept-version": "1.2", "host": address.host, **who, **headers}
    hello: bytes = pack(convert_frame(Frame("CONNECT", fields)))  # headers of CONNECT are not escaped
    return hello
