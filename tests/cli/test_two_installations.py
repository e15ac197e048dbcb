"""Two installations of one user: neither command touches the runs, the lock or the debts of the other's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl_lab.played import PlayedTwin
from tests.cli.conftest import Shell
from tests.cli.installation import QUEUES, Installation, listen
from tests.cli.test_gone_on_with import begun

NOT_HERE = "http://127.0.0.1:1/console/jolokia"


class Both:
    """Orders and billing: the same sites and pairs by name, other brokers."""

    def __init__(self, shell: Shell, orders: Installation, billing: Installation) -> None:
        self.shell, self.orders, self.billing = shell, orders, billing

    def use(self, which: Installation, **more: Any) -> Path:
        name = "orders" if which is self.orders else "billing"
        return self.shell.settings(which.london.url, which.paris.url, name=name, drain={"poll": "5ms"}, **more)


@pytest.fixture
def both(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    """Each with a message; STATE is where it is by default."""
    with (
        PlayedTwin.up(dr_ctl.folder / "one", queues=QUEUES) as one,
        PlayedTwin.up(dr_ctl.folder / "two", queues=QUEUES) as two,
    ):
        found = Both(dr_ctl, Installation(one), Installation(two))
        listen([*found.orders.sites, *found.billing.sites], monkeypatch)
        for each in (found.orders, found.billing):
            each.london.put("orders.in", 3)
            each.even()
        yield found


@pytest.fixture
def by_default(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DR_CTL_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(dr_ctl.folder / "home"))
    return dr_ctl.folder / "home" / "dr-ctl"


def test_a_run_that_was_interrupted_is_gone_on_with_by_its_own_installation_only(dr_ctl: Shell, both: Both) -> None:
    both.use(both.orders)
    begun(dr_ctl, both.orders, "quiesce", "fence")
    before = both.billing.settable
    assert dr_ctl("swapover", "--to", "paris", "--yes").code == 10  # whose place it is is known from here on

    both.use(both.billing)
    told = [dr_ctl(*words, "--yes", "--json") for words in (["resume"], ["abort"], ["swapover", "--to", "paris"])]

    assert [each.code for each in told] == [2, 2, 2]
    assert all("are of orders, whose brokers are not those of billing" in each.document["summary"] for each in told)
    assert both.billing.settable == before
    assert both.billing.changes == []
    both.use(both.orders)
    assert dr_ctl("resume", "--yes").code == 0


def test_a_run_is_known_by_its_brokers_also_where_both_have_the_same_name(dr_ctl: Shell, both: Both) -> None:
    both.use(both.orders)
    begun(dr_ctl, both.orders, "quiesce", "fence")
    before = both.billing.settable
    dr_ctl.settings(both.billing.london.url, both.billing.paris.url, name="orders", drain={"poll": "5ms"})

    told = [dr_ctl(word, "--yes", "--json") for word in ("resume", "abort")]

    assert [(each.code, each.ids[0]) for each in told] == [(10, "DR-ROLE-017")] * 2
    assert both.billing.settable == before
    both.use(both.orders)
    assert dr_ctl("abort", "--yes").code == 0
    assert both.orders.london.open


def test_by_default_each_has_a_place_of_its_own(dr_ctl: Shell, both: Both, by_default: Path) -> None:
    both.use(both.orders)
    moved = dr_ctl("swapover", "--to", "paris", "--yes")
    both.use(both.billing)
    nothing = dr_ctl("runs", "list")
    other = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (moved.code, other.code) == (0, 0)
    assert nothing.out == "0 run(s)\n"
    assert sorted(each.name.rpartition("-")[0] for each in by_default.iterdir()) == ["billing", "orders"]
    assert all((each / "installation.json").stat().st_mode & 0o777 == 0o600 for each in by_default.iterdir())


def test_an_address_that_was_mended_is_no_other_installation(dr_ctl: Shell, both: Both, by_default: Path) -> None:
    both.use(both.orders)
    assert dr_ctl("swapover", "--to", "paris", "--yes").code == 0
    path = dr_ctl.settings(both.orders.london.url, NOT_HERE, name="orders")

    assert dr_ctl("runs", "list").out.endswith("1 run(s)\n")
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    told["sites"]["london"]["brokers"][0]["jolokia"] = f"{NOT_HERE}?"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    assert dr_ctl("runs", "list").out == "0 run(s)\n"


def test_a_place_whose_owner_cannot_be_read_ends_in_words(dr_ctl: Shell, both: Both) -> None:
    both.use(both.orders)
    assert dr_ctl("swapover", "--to", "paris", "--yes").code == 0
    (dr_ctl.state / "installation.json").write_text("{", encoding="utf-8")

    ended = dr_ctl("swapover", "--to", "london", "--yes", "--json")

    assert (ended.code, "cannot be read" in ended.document["summary"]) == (2, True)
    assert dr_ctl("runs", "list").code == 0


def test_without_settings_what_needs_none_goes_on(dr_ctl: Shell, by_default: Path) -> None:
    ended = dr_ctl("runs", "list")

    assert (ended.code, ended.out) == (0, "0 run(s)\n")
    assert not by_default.exists()
