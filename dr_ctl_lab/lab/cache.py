"""The cache directory that all labs share, and locks in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_dir

from dr_ctl.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_dir() -> Path:
    """Return DR_CTL_CACHE, else the user's cache directory; create it where it is missing."""
    path = Path(os.environ.get("DR_CTL_CACHE") or user_cache_dir("dr-ctl"))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"the cache {path} cannot be made: {error.strerror or error}") from error
    return path


@contextlib.contextmanager
def locked(name: str, *, within_s: float) -> Iterator[None]:
    """Hold a lock among all processes that use the cache; the kernel releases it when this process ends."""
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
