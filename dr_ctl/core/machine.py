"""Which machine this is, since which start of it, and whether a process of it lives."""

import hashlib
import os
from pathlib import Path
from typing import Final

MACHINE: Final = Path("/etc/machine-id")
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def machine_id() -> str:
    """Tell this machine from others; empty where the system does not say. In other words than its own, which are to be
    kept confidential."""
    identity = _read(MACHINE)
    return hashlib.sha256(f"dr-ctl {identity}".encode()).hexdigest()[:12] if identity else ""


def boot_id() -> str:
    """Tell this start of the machine from all others, those of a copy of its disk too; empty where it does not say."""
    return _read(BOOT)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def process_lives(pid: int) -> bool:
    """Say whether a process of that number runs on this machine, whoever's."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
