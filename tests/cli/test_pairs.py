"""Several pairs: they move together, and what comes of each is told; no pair is ever open at both sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from dr_ctl_lab.played import PlayedTwin
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import NOT_NOW, QUEUES, Site, listen
from tests.patience import impatient

NAMES = tuple(f"orders-{number}" for number in range(1, 9))
DEAD = "orders-2"


@dataclass
class Pairs:
    """Eight pairs behind sixteen ports. `duplicates` notes every moment at which a pair was open at both sites."""

    sites: dict[str, dict[str, Site]]
    twin: PlayedTwin

    def __post_init__(self) -> None:
        self.twice: list[str] = []
        for name in NAMES:
            for site in self.sites:
                self.sites[site][name].after_change = lambda operation, name=name: self._judge(name)

    def _judge(self, name: str) -> None:
        if all(self.sites[site][name].open for site in self.sites):
            self.twice.append(name)

    def open_at(self, site: str) -> list[str]:
        return [name for name in NAMES if self.sites[site][name].open]

    def paused(self) -> int:
        return sum(len(told["paused"]) for told in self.dump())

    def dump(self) -> list[dict[str, Any]]:
        return [each.settable for brokers in self.sites.values() for each in brokers.values()]


@pytest.fixture
def pairs(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pairs]:
    with PlayedTwin.up(dr_ctl.folder / "twin", queues=QUEUES, pairs=NAMES) as twin:
        both = Pairs({site: {name: Site(twin, site, name) for name in NAMES} for site in twin.sites}, twin)
        listen([each for brokers in both.sites.values() for each in brokers.values()], monkeypatch)
        dr_ctl.installed(
            {site: {n: each.url for n, each in brokers.items()} for site, brokers in both.sites.items()},
            drain={"poll": "5ms"},
        )
        yield both


def swapover(dr_ctl: Shell, *words: str, to: str = "paris") -> Ended:
    return dr_ctl("swapover", "--to", to, "--yes", "--json", *words)


def serving(ended: Ended) -> dict[str, str | None]:
    return {pair["name"]: pair["serving"] for pair in ended.document["data"]["pairs"]}


def test_they_move_there_and_back(dr_ctl: Shell, pairs: Pairs) -> None:
    before = pairs.dump()

    there, again, back = swapover(dr_ctl), swapover(dr_ctl), swapover(dr_ctl, to="london")

    assert (there.code, again.code, back.code) == (0, 0, 0), there.document
    assert serving(there) == dict.fromkeys(NAMES, "paris")
    assert again.document["run"] is None
    assert (pairs.dump(), pairs.twice) == (before, [])


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_one_that_fails_before_the_point_of_no_return_undoes_all(
    dr_ctl: Shell, pairs: Pairs, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    before = pairs.dump()
    pairs.sites["london"]["orders-5"].instead[verb] = NOT_NOW

    ended = swapover(dr_ctl)

    assert (ended.code, serving(ended)) == (20, dict.fromkeys(NAMES, "london")), ended.document
    assert (pairs.dump(), pairs.twice) == (before, [])


def test_one_that_is_not_drained_is_named(dr_ctl: Shell, pairs: Pairs) -> None:
    before = pairs.dump()
    pairs.sites["london"]["orders-3"].holds_back(7)

    ended = swapover(dr_ctl, "--timeout", "200ms")

    assert ended.code == 24
    assert "orders-3: " in ended.document["summary"]
    assert (pairs.dump(), pairs.twice) == (before, [])


class Once(dict[str, Any]):
    """Other answers that a broker gives, each a single time; `then` is what happens right after."""

    def __init__(self, answers: Mapping[str, Any], then: Callable[[], None] = lambda: None) -> None:
        super().__init__(answers)
        self._then = then

    def __getitem__(self, kind: str) -> Any:
        self._then()
        return self.pop(kind)


class TestPartlyActivated:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        impatient(monkeypatch, activate_s=0.5, again_s=0.05)

    def test_one_that_stays_shut_is_told_and_the_others_serve(self, dr_ctl: Shell, pairs: Pairs) -> None:
        pairs.sites["paris"]["orders-2"].instead["start"] = NOT_NOW

        ended = swapover(dr_ctl)

        assert (ended.code, ended.document["outcome"]) == (21, "incomplete"), ended.document
        assert serving(ended) == {**dict.fromkeys(NAMES, "paris"), "orders-2": None}
        assert "orders-2" in ended.document["summary"]
        assert (pairs.open_at("london"), pairs.twice) == ([], [])

    def test_the_same_command_again_finishes_it(self, dr_ctl: Shell, pairs: Pairs) -> None:
        shut = pairs.sites["paris"]["orders-2"]
        shut.instead["start"] = NOT_NOW
        swapover(dr_ctl)
        del shut.instead["start"]
        advice = dr_ctl("explain", "21", "--json").document["data"]["do"]
        resumed = dr_ctl("resume", "--yes", "--json")

        ended = swapover(dr_ctl)

        assert resumed.code == 10
        assert "The same command again" in advice
        assert "dr-ctl resume" not in advice
        assert ended.code == 0, ended.document
        assert ended.document["run"] is not None
        assert serving(ended) == dict.fromkeys(NAMES, "paris")
        assert pairs.paused() == 0

    def test_one_that_is_late_is_tried_again(self, dr_ctl: Shell, pairs: Pairs) -> None:
        late = pairs.sites["paris"]["orders-2"]
        late.instead = Once({"start": NOT_NOW})

        ended = swapover(dr_ctl)

        assert (ended.code, serving(ended)) == (0, dict.fromkeys(NAMES, "paris")), ended.document

    def test_where_none_opens_all_is_undone(self, dr_ctl: Shell, pairs: Pairs) -> None:
        before = pairs.dump()
        for each in pairs.sites["paris"].values():
            each.instead["start"] = NOT_NOW

        ended = swapover(dr_ctl)

        assert (ended.code, serving(ended)) == (20, dict.fromkeys(NAMES, "london")), ended.document
        assert (pairs.dump(), pairs.twice) == (before, [])


def test_a_service_that_is_split_between_the_sites_is_brought_together_by_a_fence(dr_ctl: Shell, pairs: Pairs) -> None:
    pairs.sites["london"]["orders-1"].keep_out()
    pairs.sites["paris"]["orders-1"].let_in()

    status = dr_ctl("status", "--json")
    refused = swapover(dr_ctl)
    fenced = dr_ctl("fence", "london", "--yes", "--json")
    ended = swapover(dr_ctl)

    assert (refused.code, refused.ids[0], fenced.code) == (10, "DR-ROLE-014", 0)
    assert serving(status) == {**dict.fromkeys(NAMES, "london"), "orders-1": "paris"}
    assert status.ids == ["DR-ROLE-014"]
    assert (ended.code, serving(ended)) == (0, dict.fromkeys(NAMES, "paris")), ended.document
    assert pairs.twice == []


def test_a_pair_that_is_open_at_both_sites_is_refused(dr_ctl: Shell, pairs: Pairs) -> None:
    pairs.sites["paris"]["orders-1"].let_in()

    ended = swapover(dr_ctl)

    assert (ended.code, ended.ids[0]) == (10, "DR-ROLE-001")


def test_one_whose_broker_died_while_its_site_serves_the_others_is_told_with_both_ways_on(
    dr_ctl: Shell, pairs: Pairs
) -> None:
    pairs.twin.kill("london", DEAD)
    path = dr_ctl.folder / "dr-ctl.yaml"
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    (dead,) = (each for each in told["sites"]["london"]["brokers"] if each["name"] == DEAD)
    dead["stomp"] = "stomp://{}:{}".format(*pairs.twin.host("london", DEAD).stomp)
    path.write_text(yaml.safe_dump(told), encoding="utf-8")

    check = dr_ctl("check", "--within", "30s", "--json")
    status, validated = dr_ctl("status", "--json"), dr_ctl("validate", "--json")

    text = f"{DEAD} is served by no site, while london serves others: london/{DEAD} is down"
    assert (check.code, check.document["summary"].count(f"london/{DEAD} is down")) == (2, 1)
    for ended in (status, validated):
        (remedy,) = (each["remedy"] for each in ended.document["findings"] if each["text"] == text)
        assert "`dr-ctl unfence london` opens it" in remedy
        assert "`dr-ctl failover --to paris`" in remedy
    pairs.twin.start("london", DEAD)
    assert dr_ctl("unfence", "london", "--yes", "--json").code == 0
    assert pairs.open_at("london") == list(NAMES)


def test_the_steps_one_by_one(dr_ctl: Shell, pairs: Pairs) -> None:
    words = (("quiesce", "london"), ("fence", "london"), ("drain", "--to", "paris"), ("activate", "paris"))

    assert [dr_ctl(*each, "--yes", "--json").code for each in words] == [0, 0, 0, 0]
    assert (pairs.open_at("paris"), pairs.open_at("london"), pairs.paused()) == (list(NAMES), [], 0)


class TestLostAndBack:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        impatient(monkeypatch, activate_s=0.5, again_s=0.05)

    def close_all(self, pairs: Pairs, site: str, *, but: tuple[str, ...] = ()) -> None:
        for name in NAMES:
            (pairs.sites[site][name].let_in if name in but else pairs.sites[site][name].keep_out)()

    def test_a_failover_of_pairs_of_which_one_has_moved_needs_the_same_evidence(
        self, dr_ctl: Shell, pairs: Pairs
    ) -> None:
        self.close_all(pairs, "paris", but=("orders-1",))
        path = dr_ctl.folder / "dr-ctl.yaml"
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        for broker in told["sites"]["london"]["brokers"]:
            # Nobody is there; its clients' doors are not known.
            broker["jolokia"] = f"http://127.0.0.1:9/{broker['name']}/jolokia"
        path.write_text(yaml.safe_dump(told), encoding="utf-8")

        ended = dr_ctl(
            "failover", "--to", "paris", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )

        assert (ended.code, ended.ids[0]) == (10, "DR-ALIVE-002"), ended.document
        assert pairs.open_at("paris") == ["orders-1"]

    def test_a_pair_that_opens_at_the_lost_site_meanwhile_is_not_opened_beside_it(
        self, dr_ctl: Shell, pairs: Pairs
    ) -> None:
        self.close_all(pairs, "london")
        late, lost = pairs.sites["paris"]["orders-2"], pairs.sites["london"]["orders-2"]
        late.instead = Once({"start": NOT_NOW}, lost.let_in)

        ended = dr_ctl(
            "failover", "--to", "paris", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )

        assert ended.code in (21, 22), ended.document
        assert pairs.twice == []
        assert "orders-2" not in pairs.open_at("paris")

    def test_a_failback_that_is_incomplete_is_finished_by_the_same_command(self, dr_ctl: Shell, pairs: Pairs) -> None:
        assert swapover(dr_ctl).code == 0
        shut = pairs.sites["london"]["orders-2"]
        shut.instead["start"] = NOT_NOW
        first = dr_ctl("failback", "--to", "london", "--yes", "--json")
        served = pairs.open_at("london")
        del shut.instead["start"]

        again = dr_ctl("failback", "--to", "london", "--yes", "--json")

        assert (first.code, served) == (21, [name for name in NAMES if name != "orders-2"]), first.document
        assert (again.code, serving(again)) == (0, dict.fromkeys(NAMES, "london")), again.document
        assert "DR-RETURN-001" not in again.ids
        assert pairs.twice == []


class TestOneIsDead:
    """The broker of one pair at London dies; all others are well."""

    def dies(self, pairs: Pairs) -> None:
        pairs.sites["london"][DEAD].twin.kill("london", DEAD)

    @pytest.fixture
    def fenced(self, dr_ctl: Shell, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> Ended:
        """A swapover behind whose fence it died."""
        impatient(monkeypatch, undo_s=0.3)
        first = pairs.sites["london"]["orders-1"]
        judge = first.after_change

        def after(operation: str) -> None:
            judge(operation)
            if operation == "resume()" and pairs.sites["london"][DEAD].broker.alive:
                self.dies(pairs)

        first.after_change = after
        return swapover(dr_ctl, "--timeout", "1s")

    def test_the_undo_opens_those_that_answer_and_names_it(self, pairs: Pairs, fenced: Ended) -> None:
        assert (fenced.code, serving(fenced)) == (21, {**dict.fromkeys(NAMES, "london"), DEAD: None})
        assert DEAD in fenced.document["summary"]
        assert (pairs.open_at("paris"), pairs.twice) == ([], [])
        assert "dr-ctl unfence london" in fenced.document["findings"][-1]["remedy"]

    def test_once_it_is_back_an_unfence_opens_it(self, dr_ctl: Shell, pairs: Pairs, fenced: Ended) -> None:
        pairs.sites["london"][DEAD].twin.start("london", DEAD)

        ended = dr_ctl("unfence", "london", "--yes", "--json")

        assert (ended.code, serving(ended)) == (0, dict.fromkeys(NAMES, "london")), ended.document
        assert pairs.twice == []

    def test_an_unfence_opens_those_that_answer(self, dr_ctl: Shell, pairs: Pairs) -> None:
        assert dr_ctl("fence", "london", "--yes", "--json").code == 0
        self.dies(pairs)

        ended = dr_ctl("unfence", "london", "--yes", "--json")

        assert (ended.code, serving(ended)) == (21, {**dict.fromkeys(NAMES, "london"), DEAD: None}), ended.document
        assert (pairs.open_at("paris"), pairs.twice) == ([], [])

    def test_a_failover_says_how_those_that_serve_are_closed_and_the_rest_moves(
        self, dr_ctl: Shell, pairs: Pairs
    ) -> None:
        path = dr_ctl.folder / "dr-ctl.yaml"
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        for each in told["sites"]["london"]["brokers"]:
            each["stomp"] = "stomp://{}:{}".format(*pairs.sites["london"][each["name"]].host.stomp)
        path.write_text(yaml.safe_dump(told), encoding="utf-8")
        self.dies(pairs)

        refused = dr_ctl(
            "failover", "--to", "paris", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )
        fenced = dr_ctl("fence", "london", "--yes", "--json")
        ended = dr_ctl(
            "failover", "--to", "paris", "--yes", "--json", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )

        assert (refused.code, "dr-ctl fence london" in refused.document["findings"][0]["remedy"]) == (12, True)
        assert fenced.code == 0, fenced.document
        assert (ended.code, serving(ended)) == (0, dict.fromkeys(NAMES, "paris")), ended.document
        assert pairs.twice == []
