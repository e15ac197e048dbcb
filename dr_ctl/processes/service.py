"""Tells the service manager that started this process how it stands, as `Type=notify` units expect it."""

import os
import socket
from contextlib import suppress
from typing import Final

READY: Final = "READY=1"
ALIVE: Final = "WATCHDOG=1"
STOPPING: Final = "STOPPING=1"


def notify(*states: str) -> bool:
    """Send these states where a service manager listens; False where none does. One that is gone stops nobody."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager, suppress(OSError):
        manager.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
        manager.sendall("\n".join(states).encode())
        return True
    return False
