"""A command at a terminal of its own: what it draws is read as it comes, keys are typed."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

WITHIN_S = 30.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`drawn` is everything so far."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master, self._process = master, process
        self.drawn = ""
        self._read_to = 0

    def until(self, words: str) -> str:
        """Read on until these words come, without what moves the cursor or colours; gives what came."""
        by = time.monotonic() + WITHIN_S
        while words not in (text := _ESCAPES.sub("", self.drawn[self._read_to :])):
            assert time.monotonic() < by, text
            if not self._more(0.2):
                assert self._process.poll() is None, text
        self._read_to = len(self.drawn)
        return text

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def ended(self) -> int:
        """Wait for the end of the command; its exit code."""
        by = time.monotonic() + WITHIN_S
        while self._process.poll() is None:
            assert time.monotonic() < by, self.drawn
            self._more(0.05)
        while self._more(0.0):
            pass
        return self._process.returncode

    def _more(self, wait_s: float) -> bool:
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        try:
            read = os.read(self._master, 65_536)
        except OSError:  # nobody holds the other end any more
            return False
        self.drawn += read.decode("utf-8", "replace")
        return bool(read)


@contextmanager
def at_terminal(*words: str, columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """dr-ctl with these words, at a terminal that is its controlling one: Ctrl-C reaches it as a signal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # The first terminal that the leader of a session opens is its controlling one.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    own = 'exec "$@" <"$0" >"$0" 2>&1'
    process = subprocess.Popen(
        ["/bin/sh", "-c", own, os.ttyname(slave), sys.executable, "-m", "dr_ctl", *words],
        stdin=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    try:
        yield Terminal(master, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(slave)
        os.close(master)
