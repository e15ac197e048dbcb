"""Every remedy that is a command is run in the situation that prints it: it parses, makes nothing worse, and the next
look has no new error."""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.timeouts import impatient, runbooks
from tests.twin.conftest import prompt
from tests.twin.matrix import ACCEPTED, OPERATIONS, Death, Died, edited, lose, lose_and_return, nothing, quick, serving
from tests.twin.subject import until

SITES = ("london", "paris")
COMMAND = re.compile(r"`dr-ctl ([^`]+)`")
# Words that stand for what only a person can say.
WORDS = {"TEXT": "because", "T": "1m", "N": "unknown"}
OF_A_SITE = (
    *(f"{word} --to" for word in ("validate", "verify", "swapover", "failover", "failback", "drain")),
    *("reinstate", "fence", "activate", "unfence", "quiesce"),
)
LOOKS = (
    *("status", "validate", "failover --to paris --presume-down london --reason gone", "resume", "abort", "escalate"),
    *(f"{words} {site}" for words in OF_A_SITE for site in SITES),
)
Situation = Callable[[PlayedTwin, Command], object]


def typed(*commands: str) -> Situation:
    return lambda _, dr_ctl: [dr_ctl(*command.split(), "--yes") for command in commands]


def befalls(word: str, *given: str) -> Situation:
    return lambda twin, _: getattr(twin, word)(*given)


def cut(twin: PlayedTwin, _: Command) -> None:
    twin.cut("london")
    until(lambda: not twin.host("london").broker.attached)


def failed_over(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose(twin, dr_ctl)
    dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED)


def bridge_stopped(twin: PlayedTwin, _: Command) -> None:
    with twin.locked():
        broker = twin.host("london").broker
        assert isinstance(broker, BridgesBroker)
        broker.bridges["bridge.mirror.paris.orders.out"].stop()


def died(operation: str, at: int) -> Situation:
    def situation(twin: PlayedTwin, dr_ctl: Command) -> None:
        OPERATIONS[operation].before(twin, dr_ctl)
        with pytest.MonkeyPatch.context() as patch, suppress(Died):
            Death(at, after=True).strike(patch)
            dr_ctl(*OPERATIONS[operation].words, "--yes")

    return situation


# The plugin keeps a site closed while the other one is active.
BOTH_OPEN: dict[str, Situation] = {
    "both open": befalls("open_clients", "paris"),
    "back open": lambda twin, dr_ctl: (lose_and_return(twin, dr_ctl), twin.open_clients("london")),
}
IN_PART: dict[str, Situation] = {  # of queues that move one by one
    "moved in part": typed("swapover --to paris --queues orders.out"),
    "queue fenced": typed("fence london --queues orders.out"),
    "bridge stopped": bridge_stopped,
}
ANY: dict[str, Situation] = {
    "well": nothing,
    "fenced": typed("fence london"),
    "quiesced": typed("quiesce london"),
    "drained": typed("fence london", "drain --to paris"),
    "moved": typed("swapover --to paris"),
    "neither": befalls("close_clients", "london"),
    "paused": befalls("pause", "paris", "orders.in"),
    "killed": befalls("kill", "london"),
    "sick": befalls("sicken", "london"),
    "standby killed": befalls("kill", "paris"),
    "cut": cut,
    "lost": lose,
    "failed over": failed_over,
    "returned": lose_and_return,
    **{
        f"{name} died at {at}": died(name, at)
        for name in ("swapover", "failover", "failback", "fence")
        for at in (2, 4, 7)
    },
}
SITUATIONS = ANY | BOTH_OPEN | IN_PART
OF = {MIRROR: ANY | BOTH_OPEN, CONTINUITY: ANY, BRIDGES: SITUATIONS}
# The others at night; the adversary types what it is advised in each of its scripts.
AT_ONCE = ((MIRROR, "both open"),)


Staged = Callable[[str, str], AbstractContextManager[PlayedTwin]]


@pytest.fixture
def staged(tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch) -> Staged:
    """Twins in one situation, each made anew: a remedy may change all of it."""
    made = itertools.count()

    @contextmanager
    def stage(topology: str, situation: str) -> Iterator[PlayedTwin]:
        place = tmp_path / f"stage {next(made)}"
        place.mkdir()
        with PlayedTwin.up(place / "twin", topology=topology) as twin:
            hurry(twin, place / "runbooks")
            monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
            monkeypatch.setenv("DR_CTL_STATE_DIR", str(place / "state"))
            SITUATIONS[situation](twin, inside)
            yield twin

    return stage


def hurry(stage: Any, folder: Path) -> None:
    """The runbooks that came with dr-ctl, but that nobody waits a minute until a cut link has caught up."""
    with edited(stage) as books:
        books["runbooks"] = runbooks(folder, "within: 1m", "within: 1s")


def remedies(ended: Ended) -> set[str]:
    """The commands that a result names, in findings and in debts."""
    rows: list[dict[str, Any]] = [*ended.document["findings"], *ended.document["debts"]]
    return {words for row in rows for words in COMMAND.findall(str(row["remedy"]))}


def errors(dr_ctl: Command) -> set[str]:
    return {finding["id"] for finding in dr_ctl("status").document["findings"] if finding["severity"] == "error"}


@pytest.mark.parametrize(
    ("topology", "situation"),
    [
        pytest.param(topology, situation, marks=() if (topology, situation) in AT_ONCE else pytest.mark.deep)
        for topology, situations in OF.items()
        for situation in situations
    ],
)
def test_a_remedy_that_is_run_makes_nothing_worse(
    staged: Staged, inside: Command, monkeypatch: pytest.MonkeyPatch, topology: str, situation: str
) -> None:
    if topology == CONTINUITY:
        prompt(monkeypatch)
    impatient(monkeypatch, rates_s=0.01, link_attach_s=0.5, catch_up_s=0.5)
    named: dict[str, str] = {}
    with staged(topology, situation), quick(monkeypatch):
        for look in LOOKS:
            dry = () if look.startswith(("status", "validate", "verify")) else ("--dry-run",)
            named |= dict.fromkeys(remedies(inside(*look.split(), *dry)), look)
    assert named or situation in ("well", "moved")
    for words, printed_by in named.items():
        for site in SITES if "SITE" in words.split() else ("",):  # words that stand for something a person replaces
            command = [{**WORDS, "SITE": site}.get(word, word) for word in shlex.split(words)]
            with staged(topology, situation) as twin, quick(monkeypatch):
                helps(twin, inside, command, printed_by)


def helps(twin: PlayedTwin, dr_ctl: Command, command: list[str], printed_by: str) -> None:
    if command[:2] == ["runs", "show"] or command[0] in ("monitor", "rpo"):
        return
    before, wrong = set(serving(twin)), errors(dr_ctl)
    text = f"`{' '.join(command)}`, as {printed_by} says"
    looks = command[0] in ("status", "validate", "verify", "runs", "explain", "plan") or "--dry-run" in command

    ended = dr_ctl(*command, *(() if looks else ("--yes",)))

    assert ended.code not in (1, 2), (text, ended.document)
    after = set(serving(twin))
    assert len(after) <= max(len(before), 1), (text, ended.document)
    assert not before or after, (text, ended.document)
    assert errors(dr_ctl) <= wrong, (text, ended.document)
