"""Bytes to STOMP 1.2 frames, which are those of stomp.py, as they come in whatever pieces."""

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
        unread, at, frames = self._rest + data, 0, []
        while (end := _end(unread, at := _begin(unread, at))) is not None:
            frame = parse_frame(unread[at:end])
            if frame is None:
                raise NotStomp("a frame without a command")
            frames.append(frame)
            at = end + 1
        self._rest = unread[at:]
        return frames


def _begin(data: bytes, at: int) -> int:
    """Where the next frame begins."""
    while data[at : at + 1] in (b"\r", b"\n"):
        at += 1
    return at


def _end(data: bytes, at: int) -> int | None:
    """The position of the closing NUL of the frame that begins at `at`, or None while more bytes must come."""
    if at >= len(data):
        return None
    if not data[at : at + 1].isalpha():
        raise NotStomp(f"not a STOMP frame: {data[at : at + 20]!r}")
    bare = data.find(b"\n\n", at)
    # Search the head only: the body may be long.
    with_return = data.find(b"\n\r\n", at, bare if bare >= 0 else len(data))
    head_end = with_return if with_return >= 0 else bare
    if head_end < 0:
        if len(data) - at > LARGEST_HEAD or data.find(b"\0", at) >= 0:
            raise NotStomp("headers without an end")
        return None
    body = head_end + (3 if head_end == with_return else 2)
    length = _content_length(data[at:head_end])
    if length is None:
        end = data.find(b"\0", body)
        return end if end >= 0 else None
    return body + length if len(data) > body + length else None


def _content_length(head: bytes) -> int | None:
    at = head.find(b"\ncontent-length:")
    if at < 0:
        return None
    value = head[at + 1 :].split(b"\n", 1)[0].split(b":", 1)[1].strip()
    if not value.isdigit():
        raise NotStomp(f"content-length {value!r}")
    return int(value)
