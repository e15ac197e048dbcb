"""A STOMP port that speaks TLS from the first byte."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dr_ctl.stomp_io.address import Address, Login, TlsFiles
from dr_ctl.stomp_io.answers import Connected, Silent
from dr_ctl.stomp_io.client import greet
from tests.stomp_io.doors import CONNECTED
from tests.tls import self_signed, serving

ME = Login("me", "s3cret")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@contextmanager
def door(context: ssl.SSLContext) -> Iterator[Address]:
    """Greets whoever comes through TLS."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, suppress(OSError), context.wrap_socket(sock, server_side=True) as secure:
                    if secure.recv(65536):
                        secure.sendall(CONNECTED)
                        secure.recv(65536)

    serving_all = threading.Thread(target=serve, daemon=True)
    serving_all.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1], tls=True)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        serving_all.join(5)


def test_an_authority_that_is_named_is_trusted_and_no_other(certificate: tuple[Path, Path]) -> None:
    cert = str(certificate[0])
    with door(serving(certificate)) as address:
        assert isinstance(greet(address, ME, TlsFiles(ca=cert), timeout_s=5), Connected)
        assert isinstance(greet(address, ME, TlsFiles(verify=False), timeout_s=5), Connected)
        stranger = greet(address, ME, None, timeout_s=5)

    assert isinstance(stranger, Silent)
    assert "certificate" in stranger.because.lower()


def test_who_is_asked_for_a_certificate_shows_its_own(certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    with door(serving(certificate, asks_back=True)) as address:
        assert isinstance(greet(address, ME, TlsFiles(ca=cert, cert=cert, key=key), timeout_s=5), Connected)
        assert isinstance(greet(address, ME, TlsFiles(ca=cert), timeout_s=5), Silent)
