"""Bytes to STOMP 1.2 frames, which are those of stomp.py, as they come in whatever pieces."""

from __future__ import annotations

import os

# Without this the import looks this machine's own name up, which blocks where the name server is gone.
os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")

from stomp.utils import Frame, parse_frame

__all__ = ["HEART_BEAT", "Frame", "FrameReader", "NotStomp"]

HEART_BEAT = b"\n"
LARGEST_HEAD = 256 * 1024


class NotStomp(ValueError):
    """The bytes received are no STOMP frame."""


class FrameReader:
    """Cuts a stream of bytes into frames; heart-beats between them are dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Take what came, return the frames that are whole now. NotStomp where it cannot be a frame."""
        self._rest = (self._rest + data).lstrip(b"\r\n")
        frames = []
        while (end := self._end()) is not None:
            frame = parse_frame(self._rest[:end])
            if frame is None:
                raise NotStomp("a frame without a command")
            frames.append(frame)
            self._rest = self._rest[end + 1 :].lstrip(b"\r\n")
        return frames

    def _end(self) -> int | None:
        """Where the first frame's closing NUL stands; None while it has not come."""
        if not self._rest:
            return None
        if not self._rest[:1].isalpha():
            raise NotStomp(f"not a STOMP frame: {self._rest[:20]!r}")
        head_end = min((at for at in (self._rest.find(b"\n\n"), self._rest.find(b"\n\r\n")) if at >= 0), default=-1)
        if head_end < 0:
            if len(self._rest) > LARGEST_HEAD or b"\0" in self._rest:
                raise NotStomp("headers without an end")
            return None
        body = head_end + (2 if self._rest[head_end + 1 : head_end + 2] == b"\n" else 3)
        length = _content_length(self._rest[:head_end])
        if length is None:
            end = self._rest.find(b"\0", body)
            return end if end >= 0 else None
        return body + length if len(self._rest) > body + length else None


def _content_length(head: bytes) -> int | None:
    at = head.find(b"\ncontent-length:")
    if at < 0:
        return None
    value = head[at + 1 :].split(b"\n", 1)[0].split(b":", 1)[1].strip()
    if not value.isdigit():
        raise NotStomp(f"content-length {value!r}")
    return int(value)
