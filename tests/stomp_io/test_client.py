"""Knocking at a port, and a message through it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.answers import Closed, Connected, Failed, Passed, Refused, Silent
from dr_ctl.stomp_io.client import greet, round_trip
from dr_ctl.stomp_io.frames import Frame
from tests.stomp_io.doors import CONNECTED, Broker, closed_port, door
from tests.stomp_io.encoding import encode

ME = Login("me", "s3cret")


def test_a_broker_that_lets_us_in_says_who_it_is() -> None:
    broker = Broker()
    with door(broker.answer) as address:
        assert greet(address, ME, None, timeout_s=2) == Connected("door/1", "1.2")

    assert {"login": "me", "passcode": "s3cret", "accept-version": "1.2"}.items() <= broker.frames[0].headers.items()


def test_a_closed_port_is_told_at_once() -> None:
    began = time.monotonic()

    greeting = greet(closed_port(), ME, None, timeout_s=5)

    assert isinstance(greeting, Closed)
    assert "refused" in greeting.because
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(
    ("reply", "kind", "because"),
    [
        ([encode("ERROR", {"message": "User name [me] or\npassword is invalid"})],
         Refused, "User name [me] or password is invalid"),
        ([], Silent, "no greeting within 0.1 s"),
        (None, Silent, ""),  # it hangs up
        ([b"\x15\x03\x01\x00\x02"], Silent, ""),
        ([b"AMQP\x00\x03\x01\x00\x00"], Silent, ""),
    ],
)  # fmt: skip
def test_who_does_not_greet_is_told_by_what_it_says(reply: list[bytes] | None, kind: type, because: str) -> None:
    with door(lambda _: reply) as address:
        greeting = greet(address, ME, None, timeout_s=0.1 if reply == [] else 2)
    assert isinstance(greeting, kind)
    assert because in greeting.because
    assert ME.password not in greeting.because


def test_tls_against_a_plain_port_is_silent() -> None:
    with door(lambda _: [CONNECTED]) as address:
        tls = Address(address.host, address.port, tls=True)

        assert isinstance(greet(tls, ME, None, timeout_s=0.3), Silent)


def test_a_name_without_an_address_is_silent() -> None:
    assert isinstance(greet(Address("no-such-host.invalid", 61613), ME, None, timeout_s=2), Silent)


def test_a_message_goes_through_and_nothing_is_left() -> None:
    broker = Broker()
    with door(broker.answer) as address:
        trip = round_trip(address, ME, None, queue="dr-ctl.probe", body="hello", timeout_s=2)

    assert isinstance(trip, Passed)
    assert trip.took_s < 2
    assert broker.stored == []
    [sent] = [frame for frame in broker.frames if frame.cmd == "SEND"]
    assert sent.headers["destination-type"] == "ANYCAST"
    assert "persistent" not in sent.headers


def test_a_message_that_does_not_get_through_says_why() -> None:
    refused = encode("ERROR", {"message": "AMQ229032: no permission to send"})
    answers: dict[str, Callable[[Frame], list[bytes] | None]] = {
        "did not come back within 0.2 s": Broker(lose=lambda _: True).answer,
        "no permission": lambda frame: [CONNECTED] if frame.cmd == "CONNECT" else [refused],
    }
    for because, answer in answers.items():
        with door(answer) as address:
            trip = round_trip(address, ME, None, queue="q", body="", timeout_s=0.2)
        assert isinstance(trip, Failed)
        assert because in trip.because
    trip = round_trip(closed_port(), ME, None, queue="q", body="", timeout_s=1)
    assert isinstance(trip, Failed)
    assert "refused" in trip.because
