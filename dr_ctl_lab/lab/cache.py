"""The one directory that labs share: the unpacked distributions, and which lab has which ports."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_dir

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.engine.runs import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator

RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, HIGHEST, ROOM = 20_000, 32_000, 2_000


def cache_dir() -> Path:
    """Where things are kept: DR_CTL_CACHE, else the user's cache directory. Made when missing."""
    path = Path(os.environ.get("DR_CTL_CACHE") or user_cache_dir("dr-ctl"))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"the cache {path} cannot be made: {error.strerror}") from error
    return path


@contextlib.contextmanager
def locked(name: str, *, within_s: float) -> Iterator[None]:
    """Hold a lock among all processes that share the cache; the kernel gives it back when we end."""
    path = cache_dir() / f"{name}.lock"
    until = time.monotonic() + within_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise EnvironmentFault(f"another lab holds {path} for more than {within_s:g} s") from None
                time.sleep(0.05)
        yield


def reserve_ports(count: int, owner: Path) -> list[int]:
    """Give `count` free loopback ports to the lab in `owner`, until its directory is gone.

    Ports are written down because a lab's client port is closed most of the time: a mere look would give it away.
    And they lie below the ephemeral range, where any outgoing connection could take them meanwhile.
    """
    with locked("ports", within_s=10):
        book = cache_dir() / "ports.json"
        held = {port: lab for port, lab in _read(book).items() if Path(lab).exists()}
        candidates = [port for port in range(*_range()) if str(port) not in held]
        random.shuffle(candidates)
        found: list[int] = []
        for port in candidates:
            if len(found) == count:
                break
            if _is_free(port):
                found.append(port)
        if len(found) < count:
            raise EnvironmentFault(f"fewer than {count} free ports on the loopback interface")
        held |= {str(port): str(owner) for port in found}
        write_text(book, json.dumps(held))
        return found


def release_ports(owner: Path) -> None:
    """Give the ports of a lab back."""
    with locked("ports", within_s=10):
        book = cache_dir() / "ports.json"
        kept = {port: lab for port, lab in _read(book).items() if lab != str(owner)}
        write_text(book, json.dumps(kept))


def _read(book: Path) -> dict[str, str]:
    try:
        held = json.loads(book.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _range() -> tuple[int, int]:
    """Ports that nothing is given by chance; where the ephemeral range begins too low, the plain range."""
    try:
        ephemeral_from = int(RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        ephemeral_from = HIGHEST
    return LOWEST, min(ephemeral_from, HIGHEST) if ephemeral_from > LOWEST + ROOM else HIGHEST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
