"""Two installations of one user: neither command touches the runs, the lock or the debts of the other's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.engine.lease import FolderStore
from dr_ctl.engine.runs import Owner, Runs
from dr_ctl_lab.played import PlayedTwin
from tests.cli.conftest import Ended, Shell, begun
from tests.cli.sites import QUEUES, Sites, listen


class Both:
    def __init__(self, shell: Shell, orders: Sites, billing: Sites) -> None:
        self.shell, self.orders, self.billing = shell, orders, billing

    def use(self, which: Sites, **more: Any) -> Path:
        name = "orders" if which is self.orders else "billing"
        return which.settings(name=name, **more)


@pytest.fixture
def both(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    """Each with a message; STATE is where it is by default."""
    with (
        PlayedTwin.up(dr_ctl.folder / "one", queues=QUEUES) as one,
        PlayedTwin.up(dr_ctl.folder / "two", queues=QUEUES) as two,
    ):
        result = Both(dr_ctl, Sites(dr_ctl, one), Sites(dr_ctl, two))
        listen([*result.orders.both, *result.billing.both], monkeypatch)
        for case in (result.orders, result.billing):
            case.london.put("orders.in", 3)
            case.wait_settled()
        yield result


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
    rows = [dr_ctl(*words, "--yes", "--json") for words in (["resume"], ["abort"], ["swapover", "--to", "paris"])]

    assert [item.code for item in rows] == [2, 2, 2]
    assert all("are of orders, whose brokers are not those of billing" in item.document["summary"] for item in rows)
    assert both.billing.settable == before
    assert both.billing.changes == []
    both.use(both.orders)
    assert dr_ctl("resume", "--yes").code == 0


def test_a_run_is_known_by_its_brokers_also_where_both_have_the_same_name(dr_ctl: Shell, both: Both) -> None:
    both.use(both.orders)
    begun(dr_ctl, both.orders, "quiesce", "fence")
    before = both.billing.settable
    both.billing.settings()

    rows = [dr_ctl(word, "--yes", "--json") for word in ("resume", "abort")]

    assert [(item.code, item.ids[0]) for item in rows] == [(10, "DR-ROLE-017")] * 2
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
    assert sorted(path.name.rpartition("-")[0] for path in by_default.iterdir()) == ["billing", "orders"]
    assert all((path / "installation.json").stat().st_mode & 0o777 == 0o600 for path in by_default.iterdir())


LONDON, PARIS = "http://127.0.0.1:1/console/jolokia", "http://127.0.0.1:2/console/jolokia"
ELSEWHERE = ("http://127.0.0.1:3/console/jolokia", "http://127.0.0.1:4/console/jolokia")
RUN = "20261121T091512Z-swapover-paris-7f3a"


class TestEdited:
    """The settings of an installation that has runs are edited; STATE is where it is by default."""

    @pytest.fixture(autouse=True)
    def _lived(self, dr_ctl: Shell, both: Both, by_default: Path) -> None:
        self.dr_ctl, self.both, self.home = dr_ctl, both, by_default
        both.use(both.orders)
        assert dr_ctl("swapover", "--to", "paris", "--yes").code == 0
        [self.place] = by_default.iterdir()

    def edited(self, **changes: str) -> Ended:
        orders = self.both.orders
        urls = {"london": orders.london.url, "paris": orders.paris.url, **changes}
        name, pair = urls.pop("name", "orders"), urls.pop("pair", "orders-1")
        self.dr_ctl.installed({site: {pair: url} for site, url in urls.items()}, name=name)
        return self.dr_ctl("runs", "list", "--json")

    def runs(self) -> int:
        return len(self.dr_ctl("runs", "list", "--json").document["data"]["runs"])

    def test_one_address_that_stays_leads_back_to_its_runs_however_all_else_is_spelt(self) -> None:
        renamed, orders = {"pair": "broker-1", "name": "shop"}, self.both.orders
        for changes in (
            {"pair": "broker-1"},
            renamed,
            {"paris": PARIS},
            {"london": LONDON},
            {**renamed, "paris": PARIS},
        ):
            ended = self.edited(**changes)

            assert (len(ended.document["data"]["runs"]), ended.document["findings"]) == (1, []), changes
        spelt = orders.london.url.replace("http", "HTTP").rstrip("/") + "/"
        self.dr_ctl.installed(
            {"paris": {"b": PARIS, "orders-1": orders.paris.url}, "london": {"b": LONDON, "orders-1": spelt}}
        )
        assert self.runs() == 1
        for changes in ({"paris": PARIS}, {"london": LONDON, "paris": PARIS}):
            self.edited(**changes)
            self.dr_ctl("validate")  # looks at brokers that are not there, and learns where they are now
        assert self.runs() == 1

    def test_a_run_of_a_pair_that_was_renamed_goes_on_under_its_old_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dr_ctl, orders = self.dr_ctl, self.both.orders
        assert dr_ctl("swapover", "--to", "london", "--yes").code == 0
        monkeypatch.setenv("DR_CTL_STATE_DIR", str(dr_ctl.state))
        begun(dr_ctl, orders, "quiesce", "fence")
        before = orders.settable

        self.edited(pair="broker-1")
        ended = [dr_ctl(word, "--yes", "--json") for word in ("resume", "abort")]

        assert [(end.code, end.ids[0]) for end in ended] == [(10, "DR-ROLE-017")] * 2
        for entry in ended:
            content = entry.document["findings"][0]
            assert content["text"].endswith("the settings have no such pair; that broker is called broker-1 now")
            assert "its old name orders-1" in content["remedy"]
        assert orders.settable == before
        self.edited()
        assert dr_ctl("abort", "--yes").code == 0
        assert orders.london.open

    def test_where_every_address_has_changed_the_runs_of_that_name_are_told_with_the_ways_to_either(self) -> None:
        ended = self.edited(london=LONDON, paris=PARIS)

        assert (ended.document["data"]["runs"], ended.ids) == ([], ["DR-STATE-001"])
        content = ended.document["findings"][0]
        assert content["severity"] == "warning"
        assert str(self.place) in content["text"]
        assert "1 run(s)" in content["text"]
        [option] = re.findall(r"`(--state-dir [^`]+)`", content["remedy"])
        assert self.dr_ctl(*option.split(), "validate").code == 22
        assert self.runs() == 1
        other = self.edited(london=ELSEWHERE[0], paris=ELSEWHERE[1], name="billing")
        assert (other.document["data"]["runs"], other.document["findings"]) == ([], [])

    @pytest.mark.parametrize("what", ["open", "owed"])
    def test_no_run_begins_beside_one_that_may_be_its_own(self, what: str) -> None:
        if what == "open":
            folder = self.place / "runs" / RUN
            folder.mkdir()
            (folder / "journal.jsonl").touch()
        else:
            (self.place / "debts.json").write_text("[]", encoding="utf-8")
        both = self.both
        both.billing.settings()

        ended = self.dr_ctl("swapover", "--to", "paris", "--yes", "--json")

        assert (ended.code, both.billing.changes) == (2, [])
        assert (RUN if what == "open" else "debts") in ended.document["summary"]
        both.use(both.billing)
        assert self.dr_ctl("swapover", "--to", "paris", "--yes").code == 0

    def test_of_two_places_that_know_as_many_of_its_brokers_none_is_chosen(self) -> None:
        both = self.both
        both.use(both.billing)
        assert self.dr_ctl("swapover", "--to", "paris", "--yes").code == 0
        urls = both.orders.urls, both.billing.urls
        self.dr_ctl.installed({site: {"orders-1": urls[0][site], "billing-1": urls[1][site]} for site in urls[0]})

        ended = self.dr_ctl("runs", "list", "--json")

        assert (ended.code, str(self.place) in ended.document["summary"]) == (2, True)
        assert self.dr_ctl("--state-dir", str(self.place), "validate").code != 2
        assert self.runs() == 1


class TestDocuments:
    """The documents of brokers that can keep none: files of STATE, by site and pair."""

    def of(self, state: Path, **pairs: str) -> Runs:
        return Runs(state, Owner("orders", {"london": {name: [url] for name, url in pairs.items()}}))

    def written(self, state: Path, **pairs: str) -> None:
        runs = self.of(state, **pairs)
        with runs.lock("swapover"):
            for name, url in pairs.items():
                FolderStore(runs.documents, "london", name).create("lock", 1, url)

    def read(self, state: Path, **pairs: str) -> dict[str, list[str]]:
        runs = self.of(state, **pairs)
        read = {name: FolderStore(runs.documents, "london", name).read("lock")[1] for name in pairs}
        return {name: [text for _, text in documents] for name, documents in read.items()}

    @pytest.mark.parametrize(
        ("now", "documents"),
        [
            ({"b": "stomp://h:1"}, {"b": ["stomp://h:1"]}),
            ({"a": "stomp://h:2", "b": "stomp://h:1"}, {"a": ["stomp://h:2"], "b": ["stomp://h:1"]}),
            ({"c": "stomp://h:1", "b": "stomp://h:2"}, {"c": ["stomp://h:1"], "b": ["stomp://h:2"]}),
            ({"a": "stomp://h:9", "b": "stomp://h:1"}, {"a": [], "b": ["stomp://h:1"]}),
        ],
        ids=["renamed, another gone", "exchanged", "one renamed", "its name given to a new one"],
    )
    def test_they_go_along_with_the_name_of_their_broker(
        self, tmp_path: Path, now: dict[str, str], documents: dict[str, list[str]]
    ) -> None:
        self.written(tmp_path, a="stomp://h:1", b="stomp://h:2")

        assert self.read(tmp_path, **now) == documents
        assert self.read(tmp_path, **now) == documents

    def test_while_a_run_is_under_way_they_stay(self, tmp_path: Path) -> None:
        self.written(tmp_path, a="stomp://h:1")
        before = self.of(tmp_path, a="stomp://h:1")

        with before.lock("swapover"):
            self.of(tmp_path, b="stomp://h:1")
            assert self.read(tmp_path, a="stomp://h:1") == {"a": ["stomp://h:1"]}

        assert self.read(tmp_path, b="stomp://h:1") == {"b": ["stomp://h:1"]}


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
