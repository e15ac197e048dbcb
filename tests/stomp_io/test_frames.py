"""Frames on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.stomp_io.frames import FrameReader, NotStomp
from tests.stomp_io.encoding import encode

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(bool)


@given(st.lists(st.tuples(st.dictionaries(NAME, TEXT, max_size=3), TEXT), min_size=1, max_size=4), st.data())
def test_frames_come_back_whole_however_the_bytes_are_cut(
    told: list[tuple[dict[str, str], str]], data: st.DataObject
) -> None:
    stream = b"\n".join(encode("MESSAGE", headers, body) for headers, body in told)
    cut = data.draw(st.integers(0, len(stream)))
    reader = FrameReader()

    frames = reader.feed(stream[:cut]) + reader.feed(stream[cut:])

    # A header named content-length rules the body; it is not made here.
    assert [(frame.headers, frame.body.decode()) for frame in frames] == told


def test_a_body_with_a_length_may_hold_a_nul() -> None:
    frames = FrameReader().feed(b"MESSAGE\ncontent-length:3\n\na\0b\0\n\nRECEIPT\nreceipt-id:1\n\n\0")

    assert [(frame.cmd, frame.body) for frame in frames] == [("MESSAGE", b"a\0b"), ("RECEIPT", b"")]


def test_lines_may_end_with_carriage_returns() -> None:
    [frame] = FrameReader().feed(b"CONNECTED\r\nversion:1.2\r\n\r\n\0")

    assert (frame.cmd, frame.headers) == ("CONNECTED", {"version": "1.2"})


def test_heart_beats_between_frames_are_nothing() -> None:
    assert FrameReader().feed(b"\n\r\n\n") == []


@pytest.mark.parametrize("data", [b"\x15\x03\x01", b"MESSAGE\ncontent-length:x\n\n\0", b"A" * 300_000])
def test_what_is_not_stomp_is_said_to_be_so(data: bytes) -> None:
    with pytest.raises(NotStomp):
        FrameReader().feed(data)


def test_a_text_body_holds_no_nul() -> None:
    with pytest.raises(ValueError, match="NUL"):
        encode("SEND", {}, "a\0b")


def test_a_connect_frame_is_not_escaped() -> None:
    assert encode("CONNECT", {"passcode": "a:b\\c"}) == b"CONNECT\npasscode:a:b\\c\n\n\0"
