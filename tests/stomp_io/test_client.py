"""STOMP: addresses, frames on the wire, knocking at a port, by TLS too, and a message through it."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.core.tls import TlsFiles
from dr_ctl.stomp_io.address import (
    Address,
    Closed,
    Connected,
    Login,
    LoginDenied,
    NotPassed,
    Silent,
    StompAccount,
    endpoints,
    parse_address,
)
from dr_ctl.stomp_io.client import Frame, FrameReader, NotStomp, round_trip, try_login
from tests.stomp_io.listeners import CONNECTED, closed_port, encode, listener
from tests.tls import self_signed, serving

ME = Login("me", "s3cret")


def test_a_broker_that_lets_us_in_says_who_it_is() -> None:
    frames: list[Frame] = []
    with listener(lambda frame: frames.append(frame) or [CONNECTED]) as address:  # type: ignore[func-returns-value]
        assert try_login(address, ME, None, timeout_s=2) == Connected("listener/1", "1.2")

    assert {"login": "me", "passcode": "s3cret", "accept-version": "1.2"}.items() <= frames[0].headers.items()


def test_a_closed_port_is_told_at_once() -> None:
    began = time.monotonic()

    login_result = try_login(closed_port(), ME, None, timeout_s=5)

    assert isinstance(login_result, Closed)
    assert "refused" in login_result.because
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(
    ("reply", "kind", "because"),
    [
        ([encode("ERROR", {"message": "User name [me] or\npassword is invalid"})],
         LoginDenied, "User name [me] or password is invalid"),
        ([], Silent, "no CONNECTED frame within 0.1 s"),
        (None, Silent, ""),  # it hangs up
        ([b"\x15\x03\x01\x00\x02"], Silent, ""),
        ([b"AMQP\x00\x03\x01\x00\x00"], Silent, ""),
    ],
)  # fmt: skip
def test_who_does_not_greet_is_told_by_what_it_says(reply: list[bytes] | None, kind: type, because: str) -> None:
    with listener(lambda _: reply) as address:
        login_result = try_login(address, ME, None, timeout_s=0.1 if reply == [] else 2)
    assert isinstance(login_result, kind)
    assert because in login_result.because
    assert ME.password not in login_result.because


def test_tls_against_a_plain_port_and_a_name_without_an_address_are_silent() -> None:
    with listener(lambda _: [CONNECTED]) as address:
        for where in (Address(address.host, address.port, tls=True), Address("no-such-host.invalid", 61613)):
            assert isinstance(try_login(where, ME, None, timeout_s=0.3), Silent)


def swallows(frame: Frame) -> list[bytes]:
    """Confirms all, and delivers nothing."""
    return [encode("RECEIPT", {"receipt-id": frame.headers["receipt"]})] if "receipt" in frame.headers else []


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        (swallows, "did not come back within 0.2 s"),
        (lambda _: [encode("ERROR", {"message": "AMQ229032: no permission to send"})], "no permission"),
        (None, "refused"),  # nobody listens
    ],
)
def test_a_message_that_does_not_get_through_says_why(answer: Any, because: str) -> None:
    with listener(lambda frame: [CONNECTED] if frame.cmd == "CONNECT" else answer(frame)) as address:
        remote = closed_port() if answer is None else address
        trip = round_trip(StompAccount(remote, ME), queue="q", body="", timeout_s=0.2)
    assert isinstance(trip, NotPassed)
    assert because in trip.because


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(bool)


@given(st.lists(st.tuples(st.dictionaries(NAME, TEXT, max_size=3), TEXT), min_size=1, max_size=4), st.data())
def test_frames_come_back_however_bytes_are_cut(value: list[tuple[dict[str, str], str]], data: st.DataObject) -> None:
    stream = b"\n".join(encode("MESSAGE", headers, body) for headers, body in value)
    cut = data.draw(st.integers(0, len(stream)))
    reader = FrameReader()

    frames = reader.feed(stream[:cut]) + reader.feed(stream[cut:])

    # A header named content-length rules the body; it is not made here.
    assert [(frame.headers, frame.body.decode()) for frame in frames] == value


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        # A body with a length may hold a NUL.
        (
            b"MESSAGE\ncontent-length:3\n\na\0b\0\n\nRECEIPT\nreceipt-id:1\n\n\0",
            [("MESSAGE", b"a\0b"), ("RECEIPT", b"")],
        ),
        (b"CONNECTED\r\nversion:1.2\r\n\r\n\0", [("CONNECTED", b"")]),
        (b"\n\r\n\n", []),  # heart-beats
    ],
)
def test_frames_are_read_as_brokers_write_them(data: bytes, frames: list[tuple[str, bytes]]) -> None:
    read = FrameReader().feed(data)

    assert [(frame.cmd, frame.body) for frame in read] == frames
    assert all(frame.headers == {"version": "1.2"} for frame in read if frame.cmd == "CONNECTED")


@pytest.mark.parametrize("data", [b"\x15\x03\x01", b"MESSAGE\ncontent-length:x\n\n\0", b"A" * 300_000])
def test_what_is_not_stomp_is_said_to_be_so(data: bytes) -> None:
    with pytest.raises(NotStomp):
        FrameReader().feed(data)


def test_a_text_body_holds_no_nul_and_a_connect_frame_is_not_escaped() -> None:
    with pytest.raises(ValueError, match="NUL"):
        encode("SEND", {}, "a\0b")
    assert encode("CONNECT", {"passcode": "a:b\\c"}) == b"CONNECT\npasscode:a:b\\c\n\n\0"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


def logged_in(_: Frame) -> list[bytes]:
    return [CONNECTED]


def test_an_authority_that_is_named_is_trusted_and_no_other(certificate: tuple[Path, Path]) -> None:
    cert = str(certificate[0])
    with listener(logged_in, tls=serving(certificate)) as address:
        assert isinstance(try_login(address, ME, TlsFiles(ca=cert), timeout_s=5), Connected)
        assert isinstance(try_login(address, ME, TlsFiles(verify=False), timeout_s=5), Connected)
        stranger = try_login(address, ME, None, timeout_s=5)

    assert isinstance(stranger, Silent)
    assert "certificate" in stranger.because.lower()


def test_who_is_asked_for_a_certificate_shows_its_own(certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    with listener(logged_in, tls=serving(certificate, asks_back=True)) as address:
        assert isinstance(try_login(address, ME, TlsFiles(ca=cert, cert=cert, key=key), timeout_s=5), Connected)
        assert isinstance(try_login(address, ME, TlsFiles(ca=cert), timeout_s=5), Silent)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stomp://127.0.0.1:61613", Address("127.0.0.1", 61613)),
        ("stomp+ssl://london-1:61612", Address("london-1", 61612, tls=True)),
        ("stomp://[::1]:61613/", Address("::1", 61613)),
    ],
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@given(st.integers(1, 65535), st.booleans(), st.sampled_from(["london-1", "10.0.0.1", "::1"]))
def test_an_address_reads_back_from_its_text(port: int, tls: bool, host: str) -> None:
    address = Address(host, port, tls)

    assert parse_address(str(address)) == address


def test_a_password_is_in_no_repr_and_a_number_is_looked_up_without_a_name_server() -> None:
    assert "s3cret" not in repr(Login("me", "s3cret"))
    assert [where[:2] for _, where in endpoints(Address("127.0.0.1", 1), timeout_s=0.0)] == [("127.0.0.1", 1)]
