"""The address of a shared database is a secret: whatever is wrong with it, nothing of it is printed or kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.topologies.sharedstore.database import KINDS
from dr_ctl.topologies.sharedstore.dsn import Dsn, NotADsn
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import SHARED_STORE
from tests.conftest import Command

BROKEN = [
    "postgresql://reader:S3x%t!yZ9@127.0.0.1:1/activemq",
    "postgresql://reader:S3x]yZ9[@127.0.0.1:1/activemq",
    "postgresql://reader:[S3xyZ9]@127.0.0.1:1/activemq",
    "postgresql://reader:S3/yZ9@127.0.0.1:1/activemq",
    "mysql://reader:S3/yZ9@127.0.0.1:1/activemq",
    "mysql://reader:12?S3xyZ9@127.0.0.1:1/activemq",
    "postgresql://reader:12#S3xyZ9@127.0.0.1:1/activemq",
    "postgresql://reader:S3@yZ9@127.0.0.1:1/activemq",
    "postgresql://reader:S3 yZ9@127.0.0.1:1/activemq",
    "mysql://reader:S3xyZ9@127.0.0.1:99999/activemq",
    "mysql://reader:S3xyZ9@one:1,two:2/activemq",
    "postgresql://reader:S3xyZ9@127.0.0.1:port/activemq",
    "oracle://reader:S3xyZ9@127.0.0.1:1/activemq",
    "host=127.0.0.1 password=S3xyZ9",
]
SECRETS = ("S3", "yZ9", "12#", "12?")


@pytest.fixture
def twin(tmp_path: Path, system_of_test: None) -> Any:
    with PlayedTwin.up(tmp_path / "twin", topology=SHARED_STORE) as twin:
        yield twin


def shared_by(twin: PlayedTwin, dsn: str) -> None:
    document = twin.settings_path.read_text()
    told: dict[str, Any] = yaml.safe_load(document)
    secret = twin.directory / "dsn"
    secret.write_text(f"{dsn}\n")
    secret.chmod(0o600)
    told["store"] = {"dsn": {"file": str(secret)}}
    twin.settings_path.write_text(json.dumps(told))


def test_nothing_of_a_broken_address_is_printed_and_it_is_a_mistake_of_the_settings(
    twin: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    for dsn in BROKEN:
        shared_by(twin, dsn)
        for words in (("status",), ("swapover", "--to", "paris", "--yes"), ("--verbose", "validate", "--to", "paris")):
            ended = inside(*words)
            told = f"{ended.told}{ended.err}"
            assert (ended.code, ended.document["outcome"]) == (2, "usage"), (dsn, words, told)
            assert not [each for each in SECRETS if each in told], (dsn, words, told)


@pytest.mark.parametrize("dsn", BROKEN)
def test_an_error_quotes_nothing(dsn: str) -> None:
    with pytest.raises(NotADsn) as raised:
        KINDS[Dsn.read(dsn, tuple(KINDS)).scheme].reached(Dsn.read(dsn, tuple(KINDS)))
    assert raised.value.__context__ is None
    assert not [each for each in SECRETS if each in str(raised.value)]


@pytest.mark.parametrize(
    ("dsn", "read"),
    [
        ("postgresql://u:p%40ss%2F@h:5432/n", ("u", "p@ss/", (("h", 5432),), "n")),
        (
            "postgresql://u:a:b@one:1,two/n?target_session_attrs=read-write",
            ("u", "a:b", (("one", 1), ("two", None)), "n"),
        ),
        ("postgres:///n?host=%2Fvar%2Frun", ("", "", (), "n")),
        ("mysql://u@[::1]:3306/n", ("u", "", (("::1", 3306),), "n")),
        ("mariadb://ü:größe@db.example/n?sslrootcert=/etc/ca.pem", ("ü", "größe", (("db.example", None),), "n")),
    ],
)
def test_a_right_address_is_read_as_it_is_meant(dsn: str, read: tuple[Any, ...]) -> None:
    found = Dsn.read(dsn, tuple(KINDS))
    assert (found.user, found.password, found.hosts, found.name, found.text) == (*read, dsn)


def test_a_driver_that_says_the_password_is_not_quoted() -> None:
    dsn = Dsn.read("postgresql://u:p%40ss@h/n", tuple(KINDS))
    assert dsn.without_password("no login with p@ss, given as p%40ss") == "no login with ***, given as ***"
