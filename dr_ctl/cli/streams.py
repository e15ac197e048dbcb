"""Standard streams that decide no run: a reader that goes away, a full disk, a closed terminal stop no command."""

import io
import os
import sys
from typing import Final, TextIO

_NAMES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


class LastingStream(io.TextIOWrapper):
    """A text stream that swallows all text once its descriptor has refused some. Writes and flushes never raise."""

    refused = False

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            self._give_up()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        self.refused = True
        # The buffer keeps the refused text, offers it again, at Python's end at the latest - the null device takes it.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


def make_lasting() -> None:
    """Put lasting streams in place of this process's own. A stream that the caller has closed keeps its number, so that
    no file that is opened later gets it. A character that a stream's encoding lacks is written as an escape."""
    for name, mode in _NAMES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)


def has_reader() -> bool:
    """False once standard output has refused text."""
    return not getattr(sys.stdout, "refused", False)


def _lasting(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line = stream.encoding, stream.line_buffering
    return LastingStream(stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=by_line)
