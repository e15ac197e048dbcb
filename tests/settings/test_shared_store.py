"""The settings of a shared store: what contradicts itself, and what a replica asks of a runbook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.errors import UsageError
from dr_ctl.engine.runbook import load
from dr_ctl.processes.secrets import variables
from dr_ctl.settings import loader
from dr_ctl.settings.loader import SettingsError
from dr_ctl.settings.model import Settings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "classic-shared-store.yaml"
BY_DATABASE = {"dsn": {"env": "STORE_DSN"}, "replica": {"dsn": {"env": "REPLICA_DSN"}}}


def settings(folder: Path, store: dict[str, Any], **broker: str) -> Settings:
    told = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    told["store"] = store
    told["sites"]["paris"]["brokers"][0] |= broker
    path = folder / "dr-ctl.yaml"
    path.write_text(yaml.safe_dump(told), "utf-8")
    return loader.load(path).settings


@pytest.mark.parametrize(
    ("store", "broker", "why"),
    [
        ({}, {}, "either lock, a file, or dsn"),
        ({"lock": "lock", "dsn": {"env": "STORE_DSN"}}, {}, "either lock, a file, or dsn"),
        ({"lock": "lock", "replica": {"dsn": {"env": "REPLICA_DSN"}}}, {}, "needs dsn"),
        ({"dsn": {"env": "STORE_DSN"}, "table": "a; DROP TABLE b"}, {}, "table"),
        ({"lock": "lock"}, {"broker": "orders-london"}, "names of their own"),
    ],
)
def test_what_contradicts_itself_is_told(
    tmp_path: Path, store: dict[str, Any], broker: dict[str, str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        settings(tmp_path, store, **broker)


def test_the_logins_of_the_databases_are_hidden_from_other_programs(tmp_path: Path) -> None:
    assert {"STORE_DSN", "REPLICA_DSN"} <= variables(settings(tmp_path, BY_DATABASE))


PROMOTES = "  - verify: {to: target}\n  - hook: promote"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("  - verify: {to: target}", "activate without hook promote before it"),
        ("  - hook: promote\n  - verify: {to: target}", "hook promote stands before verify"),
        ("  - verify: {to: target}\n  - hook: other", "activate without hook promote"),
    ],
)
def test_a_replica_is_promoted_after_it_has_all_and_before_a_broker_starts_on_it(
    tmp_path: Path, lines: str, why: str
) -> None:
    store = settings(tmp_path, BY_DATABASE)
    book = (ROOT / "runbooks" / "swapover.yaml").read_text("utf-8")
    verify = next(line for line in book.splitlines() if "verify:" in line)
    for name, told in (("good", PROMOTES), ("bad", lines)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "swapover.yaml").write_text(book.replace(verify, told), "utf-8")

    load("swapover", tmp_path / "good", store.order)
    with pytest.raises(UsageError, match=why):
        load("swapover", tmp_path / "bad", store.order)


def test_without_a_replica_the_shipped_runbook_is_right(tmp_path: Path) -> None:
    load("swapover", ROOT / "runbooks", settings(tmp_path, {"lock": "lock"}).order)
