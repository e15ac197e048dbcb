"""Knocking at a port, and a message through it."""

from __future__ import annotations

import time

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.answers import Closed, Connected, Failed, Passed, Refused, Silent
from dr_ctl.stomp_io.client import greet, round_trip
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


def test_a_refusal_is_told_in_the_brokers_words_and_without_the_password() -> None:
    with door(lambda _: [encode("ERROR", {"message": "User name [me] or\npassword is invalid"})]) as address:
        assert greet(address, ME, None, timeout_s=2) == Refused("User name [me] or password is invalid")


def test_a_port_that_accepts_and_says_nothing_is_silent() -> None:
    with door(lambda _: []) as address:
        greeting = greet(address, ME, None, timeout_s=0.1)

    assert isinstance(greeting, Silent)
    assert "no greeting within 0.1 s" in greeting.because


def test_a_port_that_hangs_up_is_silent() -> None:
    with door(lambda _: None) as address:
        assert isinstance(greet(address, ME, None, timeout_s=2), Silent)


def test_a_port_that_speaks_something_else_is_silent() -> None:
    with door(lambda _: [b"\x15\x03\x01\x00\x02"]) as address:
        assert isinstance(greet(address, ME, None, timeout_s=2), Silent)


def test_an_amqp_port_is_silent() -> None:
    with door(lambda _: [b"AMQP\x00\x03\x01\x00\x00"]) as address:
        assert isinstance(greet(address, ME, None, timeout_s=2), Silent)


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


def test_a_message_that_does_not_come_back_fails_in_time() -> None:
    broker = Broker(lose=lambda _: True)
    with door(broker.answer) as address:
        trip = round_trip(address, ME, None, queue="q", body="", timeout_s=0.2)

    assert isinstance(trip, Failed)
    assert "did not come back within 0.2 s" in trip.because


def test_an_error_on_the_way_is_the_reason() -> None:
    def answer(frame: object) -> list[bytes]:
        refused = encode("ERROR", {"message": "AMQ229032: no permission to send"})
        return [CONNECTED] if getattr(frame, "cmd", "") == "CONNECT" else [refused]

    with door(answer) as address:
        trip = round_trip(address, ME, None, queue="q", body="", timeout_s=2)

    assert isinstance(trip, Failed)
    assert "no permission" in trip.because


def test_no_connection_is_the_reason() -> None:
    trip = round_trip(closed_port(), ME, None, queue="q", body="", timeout_s=1)

    assert isinstance(trip, Failed)
    assert "refused" in trip.because
