"""What the gate had seen holds no more, as another node of a broker is active or a message came: no end is unclear, and
one site serves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dr_ctl.engine.executor import _Run
from dr_ctl.engine.plan import Goal, PlannedStep
from dr_ctl.engine.ports import Outcome, Refused
from dr_ctl.topologies.common.tools import Sender
from dr_ctl.topologies.common.topology import PairDriver
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.nodes import Layout
from tests.conftest import Command
from tests.twin.matrix import ACCEPTED, Death, Died, put, serving
from tests.twin.subject import until

Q = "orders.in"
AFTER = "after the last step"
OPENING = ("right before it opens", "right after it opens")
OTHERS = (BRIDGES, BROKERSYNC, FANOUT, CONTINUITY)
BOTH_BOOTS = pytest.mark.parametrize(
    "layout",
    [pytest.param(Layout(nodes=2, takeover_s=2.0, boots_open=boots), id=f"boots-{boots}") for boots in (True, False)],
)


@pytest.fixture
def in_step(twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let the active node of a site die as a step begins, or its undo; right before or after the call that opens the
    target; or after the last step."""

    def arranged(verb: str, site: str, name: str = "apply") -> list[str]:
        owner: type = PairDriver
        if verb == AFTER:
            owner, name = _Run, "_ended"
        elif verb in OPENING:
            owner, name = Sender, "_post"
        act, killed = getattr(owner, name), list[str]()

        def die() -> None:
            monkeypatch.undo()
            twin.kill(site, node="a")
            killed.append(site)

        def acted(which: Any, *of: Any, **named: Any) -> Any:
            opens = owner is Sender and any(call.goal is Goal.OPEN for call in of[0])
            if opens or verb in (AFTER, *(step.verb for step in of[:1] if owner is PairDriver)):
                outcome = act(which, *of, **named) if verb == OPENING[1] else None
                die()
                if verb == OPENING[1]:
                    return outcome
            return act(which, *of, **named)

        monkeypatch.setattr(owner, name, acted)
        return killed

    return arranged


def cases() -> Iterator[object]:
    for topology in (MIRROR, *OTHERS):
        for verb in ("quiesce", "fence", "drain", "verify", "activate", *OPENING, "probe", AFTER):
            for site in ("london", "paris"):
                marks = (
                    () if topology == MIRROR and verb in ("fence", "verify", "activate", AFTER) else (pytest.mark.deep,)
                )
                yield pytest.param(topology, verb, site, marks=marks)


@BOTH_BOOTS
@pytest.mark.parametrize(("topology", "verb", "site"), [*cases()])
def test_a_planned_move_ends_with_one_site_that_serves_and_has_all_messages(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]], verb: str, site: str
) -> None:
    """A takeover opens what the fence had closed, or closes what the run had opened, by the node's own settings."""
    put(twin, "london", Q, 20)
    killed = in_step(verb, site)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert killed == [site], ended.document
    assert ended.code == 0, ended.document
    assert serving(twin) == ("paris",)
    assert twin.depth("paris", Q) == 20


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, BROKERSYNC, CONTINUITY, SHARED_STORE])
def test_a_message_that_is_counted_after_the_gate_is_moved_too(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers that write to both sites of a fan-out do so at every moment of a move."""
    act, begun = PairDriver.apply, list[str]()

    def acted(driver: PairDriver[Any], step: PlannedStep, *of: Any) -> Outcome:
        begun.append(step.verb)
        if step.verb == "activate" and begun.count("drain") == 1:
            put(twin, "london", Q, 1)
            twin.wait_mirrored()
        return act(driver, step, *of)

    monkeypatch.setattr(PairDriver, "apply", acted)
    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, serving(twin), twin.depth("paris", Q)) == (0, ("paris",), 1), ended.document
    assert [*begun[-7:]] == ["drain", "verify", "activate", "drain", "verify", "activate", "probe"]


@BOTH_BOOTS
@pytest.mark.parametrize("topology", [MIRROR, *(pytest.param(each, marks=pytest.mark.deep) for each in OTHERS)])
@pytest.mark.parametrize(
    "verb", [*(pytest.param(verb, marks=pytest.mark.deep) for verb in ("fence", "quiesce")), AFTER]
)
def test_a_move_that_is_undone_leaves_the_source_open(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]], verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at its gate; the source's node dies as that step is undone, or after all of them."""
    put(twin, "london", Q, 20)
    act = PairDriver.apply
    killed = in_step(verb, "london", "undo")
    monkeypatch.setattr(
        PairDriver,
        "apply",
        lambda driver, step, *of: Refused("no") if step.verb == "verify" else act(driver, step, *of),
    )

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (killed, ended.code) == (["london"], 20), ended.document
    assert serving(twin) == ("london",)


@BOTH_BOOTS
@pytest.mark.parametrize("topology", [MIRROR, *(pytest.param(each, marks=pytest.mark.deep) for each in OTHERS)])
@pytest.mark.parametrize("at", [1, 2])
def test_an_abort_at_another_node_than_that_of_the_journal_opens_the_source(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    put(twin, "london", Q, 20)
    with monkeypatch.context() as dies:
        Death(at, after=True).strike(dies)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--yes")
    twin.kill("london", node="a")
    until(lambda: any(host.is_active for host in twin.nodes("london").hosts))

    assert (dr_ctl("abort", "--yes").code, serving(twin)) == (0, ("london",))


@BOTH_BOOTS
@pytest.mark.parametrize("topology", [MIRROR, pytest.param(BRIDGES, marks=pytest.mark.deep)])
def test_a_step_at_the_site_that_waits_leaves_the_other_one_serving(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]]
) -> None:
    killed = in_step("restart-link", "london")

    ended = dr_ctl("link", "restart", "paris", "--yes")

    assert (killed, ended.code, serving(twin)) == (["london"], 0, ("london",)), ended.document


LOST = ("failover", "--to", "paris", "--yes", *ACCEPTED, "--presume-down", "london", "--reason", "its hosts are off")


def lost() -> Iterator[object]:
    steps = [("failover", verb, "paris") for verb in ("quarantine", "settle", "activate", "probe")]
    steps += [("reinstate", verb, site) for verb in ("residue", "reinstate") for site in ("london", "paris")]
    for topology in (MIRROR, BRIDGES, BROKERSYNC, CONTINUITY):
        for case in steps:
            short = topology == MIRROR and case[1] in ("quarantine", "activate", "reinstate")
            yield pytest.param(topology, *case, marks=() if short else (pytest.mark.deep,))


@BOTH_BOOTS
@pytest.mark.parametrize(("topology", "operation", "verb", "site"), [*lost()])
def test_a_failover_and_a_return_end_with_one_site_that_serves(
    twin: PlayedTwin, dr_ctl: Command, in_step: Callable[..., list[str]], operation: str, verb: str, site: str
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

    assert killed == [site], ended.document
    assert (moved.code, ended.code in (0, 20)) == (0, True), ended.document
    assert serving(twin) == ("paris",), ended.document
    assert after in ((), (0,))
    assert twin.depth("paris", Q) == 20
