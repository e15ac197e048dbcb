"""Another node of a broker becomes active while a run is under way: no end is unclear, and one site serves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dr_ctl.topologies.common.topology import PairDriver
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, FANOUT, MIRROR
from dr_ctl_lab.twin.nodes import Layout
from tests.conftest import Command
from tests.twin.matrix import ACCEPTED, put, serving
from tests.twin.subject import until

Q = "orders.in"
AFTER = "after the last step"


@pytest.fixture
def in_step(twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[str]]:
    """Let the active node of a site die as a step begins, or after the last one."""

    def arranged(verb: str, site: str) -> list[str]:
        name = "apply" if verb != AFTER else "observe"
        act, killed = getattr(PairDriver, name), list[str]()

        def acted(driver: Any, *of: Any) -> Any:
            if verb in (AFTER, *(each.verb for each in of[:1])):
                monkeypatch.undo()
                twin.kill(site, node="a")
                killed.append(site)
            return act(driver, *of)

        monkeypatch.setattr(PairDriver, name, acted)
        return killed

    return arranged


def cases() -> Iterator[object]:
    for topology in (MIRROR, BRIDGES, BROKERSYNC, FANOUT):
        for verb in ("quiesce", "fence", "drain", "verify", "activate", "probe", AFTER):
            for site in ("london", "paris"):
                marks = (
                    () if topology == MIRROR and verb in ("fence", "verify", "activate", AFTER) else (pytest.mark.deep,)
                )
                yield pytest.param(topology, verb, site, marks=marks)


@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0)])
@pytest.mark.parametrize(("topology", "verb", "site"), [*cases()])
def test_a_planned_move_ends_with_one_site_that_serves_and_has_all_messages(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[[str, str], list[str]], verb: str, site: str
) -> None:
    """The clients' listeners open at boot, so what the fence had closed is open after the takeover."""
    put(twin, "london", Q, 20)
    killed = in_step(verb, site)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert killed == [site]
    assert ended.code == 0, ended.document
    assert serving(twin) == ("paris",)
    assert twin.depth("paris", Q) == 20


LOST = ("failover", "--to", "paris", "--yes", *ACCEPTED, "--presume-down", "london", "--reason", "its hosts are off")


def lost() -> Iterator[object]:
    steps = [("failover", verb, "paris") for verb in ("quarantine", "settle", "activate", "probe")]
    steps += [("reinstate", verb, site) for verb in ("residue", "reinstate") for site in ("london", "paris")]
    for topology in (MIRROR, BRIDGES, BROKERSYNC):
        for case in steps:
            short = topology == MIRROR and case[1] in ("quarantine", "activate", "reinstate")
            yield pytest.param(topology, *case, marks=() if short else (pytest.mark.deep,))


@pytest.mark.parametrize("layout", [Layout(nodes=2, takeover_s=2.0)])
@pytest.mark.parametrize(("topology", "operation", "verb", "site"), [*lost()])
def test_a_failover_and_a_return_end_with_one_site_that_serves(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[[str, str], list[str]], operation: str, verb: str, site: str
) -> None:
    put(twin, "london", Q, 20)
    twin.wait_mirrored()
    twin.kill("london")
    killed = in_step(verb, site) if operation == "failover" else []
    moved = dr_ctl(*LOST)
    ended, after = moved, tuple[int, ...]()
    if operation == "reinstate":
        twin.start("london")
        until(lambda: any(host.is_active for host in twin.nodes("london").hosts))
        killed = in_step(verb, site)
        ended = dr_ctl("reinstate", "london", "--yes")
        after = () if ended.code == 0 else (dr_ctl("reinstate", "london", "--yes").code,)

    assert killed == [site]
    assert (moved.code, ended.code in (0, 20)) == (0 if operation == "reinstate" else ended.code, True), ended.document
    assert serving(twin) == (() if moved.code else ("paris",)), ended.document
    assert after in ((), (0,))
    assert moved.code or twin.depth("paris", Q) == 20
