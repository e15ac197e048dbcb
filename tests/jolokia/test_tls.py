"""TLS as the settings say: whom to trust, and who asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dr_ctl.core.errors import Unreachable
from dr_ctl.jolokia.client import Account, Read, Reader, Wire
from dr_ctl.jolokia.errors import NotConnected
from tests.jolokia.console import answers, console, value
from tests.tls import self_signed, serving

BEAN = 'org.apache.activemq.artemis:broker="a"'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@contextmanager
def served(certificate: tuple[Path, Path], *, asks_back: bool = False) -> Iterator[str]:
    """A console behind TLS; `asks_back` for a certificate of who asks."""
    with console(answers(value({"Depth": 7}))) as server:
        server.socket = serving(certificate, asks_back=asks_back).wrap_socket(server.socket, server_side=True)
        yield server.url.replace("http:", "https:")


def depth(url: str, verify: bool | str, cert: tuple[str, str] | None = None) -> object:
    """Ask twice: the second time over the connection that was kept."""
    account = Account(url, "dr-ctl", "secret", "http://127.0.0.1", verify=verify, cert=cert)
    with closing(Wire(account)) as wire:
        told = [Reader(wire).look([Read(BEAN, ("Depth",))])[0].value() for _ in range(2)]
    assert told[0] == told[1]
    return told[0]


def test_an_authority_that_is_named_is_trusted_and_no_other(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with served(certificate) as url:
        assert depth(url, str(certificate[0])) == {"Depth": 7}
        with pytest.raises(Unreachable, match="TLS failed") as caught:
            depth(url, verify=True)
        with pytest.raises(NotConnected, match="a file that TLS needs cannot be used") as missing:
            depth(url, str(tmp_path / "none.pem"))
    assert not caught.value.refused
    assert missing.value.remedy.startswith("Name PEM files")


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
