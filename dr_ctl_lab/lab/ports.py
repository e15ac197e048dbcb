"""The ports of labs: a file has them; they are free again when the lab's directory is removed."""

import json
import random
import socket
from pathlib import Path
from typing import Final

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab.cache import cache_dir, locked

RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, HIGHEST, ROOM = 20_000, 32_000, 2_000


def reserve_ports(count: int, owner: Path) -> list[int]:
    """Reserve `count` free loopback ports for the lab in `owner`, until its directory is removed.

    A lab's closed client port would look free, so reserved ports are stored in a file. They are below the ephemeral
    range, from which outgoing connections take ports.
    """
    with locked("ports", within_s=10):
        book = cache_dir() / "ports.json"
        held = {port: lab for port, lab in _read(book).items() if Path(lab).exists()}
        candidates = [port for port in range(*_range()) if str(port) not in held]
        random.shuffle(candidates)
        numbers: list[int] = []
        for port in candidates:
            if len(numbers) == count:
                break
            if _is_free(port):
                numbers.append(port)
        if len(numbers) < count:
            raise EnvironmentFault(f"fewer than {count} free ports on the loopback interface")
        held |= {str(port): str(owner) for port in numbers}
        write_text(book, json.dumps(held))
        return numbers


def release_ports(owner: Path) -> None:
    """Release the ports of a lab."""
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
    """The range below the ephemeral ports; where those begin too low, the whole range."""
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
