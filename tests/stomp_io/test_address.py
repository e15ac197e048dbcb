"""Addresses and logins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.stomp_io.address import Address, Login, endpoints, parse_address


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tcp://london:61613", "scheme 'tcp'"),
        ("stomp://london", "port is missing"),
        ("stomp://:61613", "host is missing"),
        ("stomp://london:99999", "Port out of range"),
        ("stomp://london:stomp", "Port could not be cast"),
        ("stomp://me:secret@london:61613", "carries no login"),
        ("stomp://london:61613/orders", "something follows the port"),
        ("london:61613", "scheme 'london'"),
        ("", "scheme ''"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="expected stomp://HOST:PORT") as refused:
        parse_address(text)

    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


@given(st.integers(1, 65535), st.booleans(), st.sampled_from(["london-1", "10.0.0.1", "::1"]))
def test_an_address_reads_back_from_its_text(port: int, tls: bool, host: str) -> None:
    address = Address(host, port, tls)

    assert parse_address(str(address)) == address


def test_a_password_is_in_no_repr() -> None:
    assert "s3cret" not in repr(Login("me", "s3cret"))


def test_a_number_is_looked_up_without_a_name_server() -> None:
    assert [where[:2] for _, where in endpoints(Address("127.0.0.1", 1), timeout_s=0.0)] == [("127.0.0.1", 1)]
