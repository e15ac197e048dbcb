"""Several pairs, and what a scenario cannot say of them: evidence of each, and one that opens in between."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dr_ctl_lab.played import PlayedTwin
from tests.cli.conftest import Shell
from tests.cli.installation import NOT_NOW, QUEUES, Site, listen
from tests.cli.moving import ACCEPTED, failover
from tests.patience import impatient

NAMES = tuple(f"orders-{number}" for number in range(1, 4))


@dataclass
class Pairs:
    """Three pairs. `duplicates` notes every moment at which a pair was open at both sites."""

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


class Once(dict[str, Any]):
    """Other answers that a broker gives, each a single time; `then` is what happens right after."""

    def __init__(self, answers: Mapping[str, Any], then: Callable[[], None] = lambda: None) -> None:
        super().__init__(answers)
        self._then = then

    def __getitem__(self, kind: str) -> Any:
        self._then()
        return self.pop(kind)


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
        with dr_ctl.edited() as told:
            for broker in told["sites"]["london"]["brokers"]:
                # Nobody is there; its clients' doors are not known.
                broker["jolokia"] = f"http://127.0.0.1:9/{broker['name']}/jolokia"

        ended = failover(dr_ctl, "--yes", *ACCEPTED)

        assert (ended.code, ended.ids[0]) == (10, "DR-ALIVE-002"), ended.document
        assert pairs.open_at("paris") == ["orders-1"]

    def test_a_pair_that_opens_at_the_lost_site_meanwhile_is_not_opened_beside_it(
        self, dr_ctl: Shell, pairs: Pairs
    ) -> None:
        self.close_all(pairs, "london")
        late, lost = pairs.sites["paris"]["orders-2"], pairs.sites["london"]["orders-2"]
        late.instead = Once({"start": NOT_NOW}, lost.let_in)

        ended = failover(dr_ctl, "--yes", *ACCEPTED)

        assert ended.code in (21, 22), ended.document
        assert pairs.twice == []
        assert "orders-2" not in pairs.open_at("paris")
