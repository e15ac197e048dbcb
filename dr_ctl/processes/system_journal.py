"""Hands lines to the journal of this system, by journald's own protocol, or else to syslog.

No line is worth a run: where nobody listens, or a listener is slow, the line is given up at once.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

VARIABLE: Final = "DR_CTL_SYSTEM_JOURNAL"
"""Names another socket that speaks journald's protocol; empty, nothing is told."""
_JOURNALD: Final = "/run/systemd/journal/socket"
_SYSLOG: Final = "/dev/log"
_IDENTIFIER: Final = "dr-ctl"
_NOTICE: Final = 5
_USER: Final = 1 << 3  # syslog's facility of programs that users start


def tell(message: str, fields: Mapping[str, str], *, syslog: str = _SYSLOG) -> str | None:
    """Hand over a line; `fields` go to journald beside it, by upper-case names. Names who took it, or None."""
    named = os.environ.get(VARIABLE, _JOURNALD)
    if not named:
        return None
    all_fields = {
        "MESSAGE": message,
        "PRIORITY": str(_NOTICE),
        "SYSLOG_IDENTIFIER": _IDENTIFIER,
        "SYSLOG_PID": str(os.getpid()),
        **fields,
    }
    if _sent(named, b"".join(_field(name, value) for name, value in all_fields.items())):
        return "journald"
    now = time.strftime("%b %e %H:%M:%S")  # local time and no zone, as syslog has it
    line = f"<{_USER | _NOTICE}>{now} {_IDENTIFIER}[{os.getpid()}]: {message}"
    return "syslog" if named == _JOURNALD and _sent(syslog, line.encode("utf-8", "replace")) else None


def _field(name: str, value: str) -> bytes:
    """One field: a line, or where the value has lines of its own, with its length before it."""
    raw = value.encode("utf-8", "replace")
    if b"\n" in raw:
        return name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n"
    return name.encode() + b"=" + raw + b"\n"


def _sent(path: str, datagram: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as listener, suppress(OSError):
        listener.setblocking(False)
        listener.connect(path)
        return listener.send(datagram) == len(datagram)
    return False
