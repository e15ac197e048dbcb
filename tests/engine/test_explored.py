"""Every state that commands, faults and failures lead to, to a depth: the engine as it is moves a machine in memory.

Breadth first, each state once. A command is tried undisturbed, and with every fault at every one of its calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from dr_ctl.application.recovery_options import why_not_undone
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.operations import FAILBACK, FAILOVER, FENCE, SWAPOVER, single_step
from dr_ctl.engine.plan import Call, Plan, Spec
from tests.engine.desk import Cost, Desk
from tests.engine.machine import Fault, Killed, Machine, Site

SITES: Final = ("london", "paris")
OPERATIONS: Final = (SWAPOVER, FAILOVER, FAILBACK, FENCE)
UNDONE: Final = (ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT)
MOVED: Final = (SWAPOVER, FAILOVER, FAILBACK)


@dataclass
class Judged(Machine):
    """A machine that notes as `wrong` that a second site was opened, or a site that lacks what the other holds, unless
    the command `may_lose` or the site `served` before."""

    may_lose: bool = False
    served: tuple[str, ...] = ()
    wrong: list[str] = field(default_factory=list)

    def judge_opening(self, call: Call, other: Site) -> None:
        if other.open:
            self.wrong.append(f"{call.summary}: both sites let clients in")
        if other.outflow and not self.may_lose and call.site not in self.served:
            self.wrong.append(f"{call.summary}: what the other holds is lost")


@dataclass
class World:
    """One state: the machine, the journal of an open run, and the commands and failures that led here."""

    machine: Judged
    journal: bytes | None = None
    path: tuple[str, ...] = ()
    by_hand: str | None = None

    @property
    def key(self) -> str:
        sites = {name: (site.listeners, site.paused, site.links, site.outflow, site.silent, site.down)
                 for name, site in self.machine.sites.items()}  # fmt: skip
        lines = [json.loads(line) for line in (self.journal or b"").splitlines()]
        timeless = [[line.get(key) for key in ("kind", "step", "call", "outcome")] for line in lines]
        return repr((sites, self.machine.cut, self.machine.debts, self.journal and timeless, self.by_hand))

    @property
    def serving(self) -> list[str]:
        return [name for name, site in self.machine.sites.items() if site.open]

    def then(self, what: str) -> World:
        return replace(self, machine=deepcopy(self.machine), path=(*self.path, what))


def start() -> World:
    """London serves, one message is still to ship; each site has one listener and one queue, and a listener for the
    link."""
    london = Site({"clients": True}, {"orders": False}, 1, links={"mirror": True})
    paris = Site({"clients": False}, {"orders": False}, links={"mirror": True})
    return World(Judged(sites={"london": london, "paris": paris}))


@dataclass
class Explorer:
    """`folder` is where journals are written; `seen` are the states by their keys; `ended` counts the
    ends of commands."""

    folder: Path
    seen: dict[str, World] = field(default_factory=dict)
    ended: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def explore(self, depth: int) -> None:
        edge = [start()]
        self.seen = {edge[0].key: edge[0]}
        for _ in range(depth):
            reached = (item for world in edge for item in self.from_(world))
            edge = [state for state in reached if self.seen.setdefault(state.key, state) is state]

    def from_(self, world: World) -> Iterator[World]:
        yield from failures(world)
        for name in self.commands(world):
            calls = yield from self._with(world, name, {})
            for number in range(1, calls + 1):
                for fault in Fault:
                    yield from self._with(world, name, {number: fault})

    def commands(self, world: World) -> list[str]:
        if world.journal is not None:
            return ["resume", "abort", *(f"fence {site}" for site in SITES)]  # a fence goes beside an open run
        return [f"{operation} {site}" for operation in OPERATIONS for site in SITES]

    def _with(self, world: World, name: str, faults: dict[int, Fault]) -> Iterator[World]:
        text = "".join(f", call {number}: {fault.value}" for number, fault in faults.items())
        reached = world.then(f"{name}{text}")
        calls = self.run(reached, name, faults)
        yield reached
        return calls

    def run(self, world: World, name: str, faults: dict[int, Fault]) -> int:
        """Type one command, and judge its end; returns how many calls it made."""
        machine, before = world.machine, world.serving
        machine.faults, machine.calls, machine._blind = faults, 0, False
        journal = self.folder / "journal.jsonl"
        journal.unlink(missing_ok=True)
        spec, past, beside = asked(name), None, name.startswith(FENCE)
        if world.journal is not None and not beside:
            journal.write_bytes(world.journal)
            past = Desk(self.folder, machine).past()
            assert past is not None
            spec = past.plan.spec
        machine.may_lose = spec.operation == FAILOVER
        machine.served = tuple(past.plan.serving) if past is not None else tuple(before)
        book = single_step(FENCE) if spec.operation == FENCE else None
        desk = Desk(self.folder, machine, spec=spec, book=book, exposure=Cost() if spec.operation == FAILOVER else None)
        code = self._typed(desk, name)
        assert not machine.wrong, f"{'; '.join(world.path)}: {machine.wrong[0]}"
        verb = name.partition(" ")[0]
        self.ended[verb, code] = self.ended.get((verb, code), 0) + 1
        if code is None and not (beside and world.journal is not None):  # killed, or refused before anything began
            world.journal = journal.read_bytes() if journal.exists() and journal.stat().st_size else None
        elif code is not None:
            world.journal = world.journal if beside else None
            world.by_hand = f"open {machine.served[0]}" if code == ExitCode.STRANDED and machine.served else None
            judge(world, spec, name, code, machine.served)
        return machine.calls

    def _typed(self, desk: Desk, name: str) -> int | None:
        try:
            if name == "abort":
                past = desk.past()
                assert past is not None
                refusal = why_not_undone(past, desk.machine.read(), "run")
                if refusal is None:
                    return int(desk.abort().code)
                if "--forget" in (refusal.remedy or ""):
                    desk.path.unlink()  # it is typed: the run is given up, and nothing of it is undone
                return None
            if not isinstance(desk.decide(), Plan):
                return None
            return int(desk.go().code)
        except Killed:
            return None


def asked(name: str) -> Spec:
    operation, _, site = name.partition(" ")
    if operation in ("resume", "abort"):
        return Spec(SWAPOVER, "paris")
    other = next(item for item in SITES if item != site)
    return Spec(
        operation, other if operation == FENCE else site, accept_loss="unknown" if operation == FAILOVER else None
    )


def judge(world: World, spec: Spec, name: str, code: int, served: tuple[str, ...]) -> None:
    """A code that claims something is true of the machine. A site that cannot be seen claims nothing."""
    story = f"{'; '.join(world.path)} ended {code}"
    source = next(site for site in SITES if site != spec.target)
    open_ = world.serving
    if code in UNDONE or (code == ExitCode.OK and name == "abort"):
        assert not served or [*served] == open_ or any(_dark(world, site) for site in SITES), story
    elif code == ExitCode.OK and spec.operation in MOVED:
        assert open_ == [spec.target] or (spec.operation == FAILOVER and _dark(world, source)), story
        assert spec.target in open_, story
    elif code == ExitCode.OK and spec.operation == FENCE:
        assert source not in open_, story
    elif code == ExitCode.INCOMPLETE:
        assert spec.target in open_, story


def _dark(world: World, site: str) -> bool:
    return world.machine.sites[site].down or world.machine.sites[site].silent


def failures(world: World) -> Iterator[World]:
    """What happens to sites and link; one site is away at a time."""
    for name in SITES:
        other = next(site for site in SITES if site != name)
        site = world.machine.sites[name]
        if site.down:
            for opened in (False, True) if world.machine.sites[other].open else (True,):
                back = world.then(f"{name} is back{', open' if opened else ', closed'}")
                back.machine.sites[name].down = False
                back.machine.sites[name].listeners["clients"] = opened and site.listeners["clients"]
                yield back
        elif not _dark(world, other):
            gone = world.then(f"{name} dies")
            gone.machine.sites[name].down = True
            gone.machine.debts = (*world.machine.debts, *_owed(world, name))
            yield gone
            if not site.silent:
                hidden = world.then(f"{name} falls silent")
                hidden.machine.sites[name].silent = True
                yield hidden
        if site.silent:
            heard = world.then(f"{name} answers again")
            heard.machine.sites[name].silent = False
            yield heard
    cut = world.then("the link heals" if world.machine.cut else "the link is cut")
    cut.machine.cut = not world.machine.cut
    yield cut


def _owed(world: World, name: str) -> Iterator[Debt]:
    """A site that dies while the other serves owes what a failover writes down."""
    other = next(site for site in SITES if site != name)
    if world.machine.sites[other].open and not any(debt.lost_site == name for debt in world.machine.debts):
        yield Debt(DebtKind.FENCE, name, other, "2026-11-21T02:00:00Z")


def healed(world: World) -> World:
    """Everything is there again; a site that was lost comes back closed where the other serves."""
    well = world.then("all is there again")
    well.machine.cut = False
    for name, site in well.machine.sites.items():
        other = next(site for site in SITES if site != name)
        if site.down and well.machine.sites[other].open:
            site.listeners["clients"] = False
        site.down = site.silent = False
    return well


def way_out(explorer: Explorer, world: World, most: int, accept: Callable[[World], bool]) -> tuple[str, ...] | None:
    """The shortest commands that lead from a healed state to an accepted one; None where there are none."""
    edge = [world]
    for _ in range(most + 1):
        for item in edge:
            if accept(item):
                return item.path[len(world.path) :]
        edge = [reached for each in edge for reached in _next(explorer, each)]
    return None


def _next(explorer: Explorer, world: World) -> Iterator[World]:
    for name in explorer.commands(world):
        reached = world.then(name)
        explorer.run(reached, name, {})
        if reached.key != world.key:
            yield reached
    if world.by_hand is not None and not world.serving:
        opened = world.then(f"by hand: {world.by_hand}")
        opened.machine.sites[world.by_hand.removeprefix("open ")].listeners["clients"] = True
        opened.by_hand = None
        yield opened


LONGEST = 3  # commands that lead out of any trouble


def one_site_serves(world: World) -> bool:
    return len(world.serving) == 1 and world.journal is None


def check(folder: Path, depth: int) -> Explorer:
    """The judgements above fail on the way; here each state's way out is looked for."""
    explorer = Explorer(folder)
    explorer.explore(depth)
    stuck = [
        item.path
        for item in explorer.seen.values()
        if way_out(explorer, healed(item), LONGEST, one_site_serves) is None
    ]
    assert not stuck, "\n".join("; ".join(path) for path in sorted(stuck, key=len)[:5])
    return explorer


@pytest.mark.parametrize(
    ("depth", "states"),
    [
        (1, 20),
        pytest.param(3, 2000, marks=pytest.mark.deep),  # some two minutes
        pytest.param(4, 10000, marks=pytest.mark.chaos),
    ],
)
def test_whatever_commands_meet_there_is_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, states: int
) -> None:
    """From 3 114 states at depth 3, 19 000 commands were typed; no state is without a way out."""
    monkeypatch.setattr("os.fdatasync", lambda _: None)  # processes are killed here, no machine is

    explorer = check(tmp_path, depth)

    assert len(explorer.seen) > states
    assert {name for name, _ in explorer.ended} == {*OPERATIONS, "resume", "abort"}
    assert all((name, ExitCode.OK) in explorer.ended for name in (*OPERATIONS[:1], "resume", "abort"))
