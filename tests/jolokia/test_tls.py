"""TLS as the settings say: whom to trust, and who asks."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dr_ctl.core.errors import Unreachable
from dr_ctl.jolokia.client import Account, Read, Reader, Wire
from dr_ctl.jolokia.errors import NotConnected
from tests.jolokia.console import answers, console, value

BEAN = 'org.apache.activemq.artemis:broker="a"'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*words, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    return cert, key


@contextmanager
def served(certificate: tuple[Path, Path], *, asks_back: bool = False) -> Iterator[str]:
    """A console behind TLS; `asks_back` for a certificate of who asks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if asks_back:
        context.load_verify_locations(certificate[0])
        context.verify_mode = ssl.CERT_REQUIRED
    with console(answers(value({"Depth": 7}))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server.url.replace("http:", "https:")


def depth(url: str, verify: bool | str, cert: tuple[str, str] | None = None) -> object:
    """Ask twice: the second time over the connection that was kept."""
    account = Account(url, "dr-ctl", "secret", "http://127.0.0.1", verify=verify, cert=cert)
    with closing(Wire(account)) as wire:
        told = [Reader(wire).look([Read(BEAN, ("Depth",))])[0].value() for _ in range(2)]
    assert told[0] == told[1]
    return told[0]


def test_an_authority_that_is_named_is_trusted(certificate: tuple[Path, Path]) -> None:
    with served(certificate) as url:
        assert depth(url, str(certificate[0])) == {"Depth": 7}


def test_an_authority_that_nobody_named_is_not(certificate: tuple[Path, Path]) -> None:
    with served(certificate) as url, pytest.raises(Unreachable, match="TLS failed") as caught:
        depth(url, verify=True)

    assert not caught.value.refused


def test_whom_this_machine_trusts_is_trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with served(certificate) as url:
        assert depth(url, verify=True) == {"Depth": 7}


def test_another_host_name_is_not_trusted_unless_nothing_is_verified(certificate: tuple[Path, Path]) -> None:
    with served(certificate) as url:
        other = url.replace("127.0.0.1", "localhost")
        with pytest.raises(Unreachable, match="TLS failed"):
            depth(other, str(certificate[0]))
        assert depth(other, verify=False) == {"Depth": 7}


def test_who_is_asked_for_a_certificate_shows_its_own(certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    with served(certificate, asks_back=True) as url:
        assert depth(url, cert, (cert, key)) == {"Depth": 7}
        with pytest.raises(Unreachable):
            depth(url, cert)


def test_a_file_that_is_missing_makes_one_place_unreachable(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with served(certificate) as url, pytest.raises(NotConnected, match="a file that TLS needs cannot be used"):
        depth(url, str(tmp_path / "none.pem"))
