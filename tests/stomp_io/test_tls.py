"""A STOMP port that speaks TLS from the first byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.stomp_io.address import Login, TlsFiles
from dr_ctl.stomp_io.answers import Connected, Silent
from dr_ctl.stomp_io.client import greet
from dr_ctl.stomp_io.frames import Frame
from tests.stomp_io.doors import CONNECTED, door
from tests.tls import self_signed, serving

ME = Login("me", "s3cret")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


def greeted(_: Frame) -> list[bytes]:
    return [CONNECTED]


def test_an_authority_that_is_named_is_trusted_and_no_other(certificate: tuple[Path, Path]) -> None:
    cert = str(certificate[0])
    with door(greeted, tls=serving(certificate)) as address:
        assert isinstance(greet(address, ME, TlsFiles(ca=cert), timeout_s=5), Connected)
        assert isinstance(greet(address, ME, TlsFiles(verify=False), timeout_s=5), Connected)
        stranger = greet(address, ME, None, timeout_s=5)

    assert isinstance(stranger, Silent)
    assert "certificate" in stranger.because.lower()


def test_who_is_asked_for_a_certificate_shows_its_own(certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    with door(greeted, tls=serving(certificate, asks_back=True)) as address:
        assert isinstance(greet(address, ME, TlsFiles(ca=cert, cert=cert, key=key), timeout_s=5), Connected)
        assert isinstance(greet(address, ME, TlsFiles(ca=cert), timeout_s=5), Silent)
