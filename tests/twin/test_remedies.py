"""Every remedy that is a command is run in the situation that prints it: it parses, makes nothing worse, and the next
look has no new error."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.engine.runbook import files, shipped
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.conftest import prompt
from tests.twin.matrix import OPERATIONS, Death, lived, lose, lose_and_return, nothing, quick, serving
from tests.twin.subject import until

COMMAND = re.compile(r"`dr-ctl ([^`]+)`")
# Words that stand for what only a person can say.
WORDS = {"TEXT": "because", "T": "1m", "N": "unknown"}
LOOKS = (
    ("status",),
    ("validate",),
    *(("validate", "--to", site) for site in ("london", "paris")),
    *((name, "--to", site) for name in ("swapover", "failover", "failback", "drain") for site in ("london", "paris")),
    *(
        (name, site)
        for name in ("reinstate", "fence", "activate", "unfence", "quiesce")
        for site in ("london", "paris")
    ),
    *(("verify", "--to", site) for site in ("london", "paris")),
    *(("failover", "--to", "paris", "--presume-down", "london", "--reason", "gone"),),
    *((name,) for name in ("resume", "abort", "escalate")),
)


def fenced(twin: PlayedTwin, dr_ctl: Command) -> None:
    dr_ctl("fence", "london", "--yes")


def quiesced(twin: PlayedTwin, dr_ctl: Command) -> None:
    dr_ctl("quiesce", "london", "--yes")


def drained(twin: PlayedTwin, dr_ctl: Command) -> None:
    fenced(twin, dr_ctl)
    dr_ctl("drain", "--to", "paris", "--yes")


def both_open(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.open_clients("paris")


def neither(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.close_clients("london")


def paused(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.pause("paris", "orders.in")


def cut(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.cut("london")
    until(lambda: not twin.host("london").broker.attached)


def killed(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("london")


def sick(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.sicken("london")


def standby_killed(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("paris")


def moved(twin: PlayedTwin, dr_ctl: Command) -> None:
    dr_ctl("swapover", "--to", "paris", "--yes")


def failed_over(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose(twin, dr_ctl)
    dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")


def back_open(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose_and_return(twin, dr_ctl)
    twin.open_clients("london")


def moved_in_part(twin: PlayedTwin, dr_ctl: Command) -> None:
    dr_ctl("swapover", "--to", "paris", "--queues", "orders.out", "--yes")


def queue_fenced(twin: PlayedTwin, dr_ctl: Command) -> None:
    dr_ctl("fence", "london", "--queues", "orders.out", "--yes")


def bridge_stopped(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.still():
        broker = twin.host("london").broker
        assert isinstance(broker, BridgesBroker)
        broker.bridges["bridge.mirror.paris.orders.out"].stop()


# Of queues that move one by one.
IN_PART = {each.__name__: each for each in (moved_in_part, queue_fenced, bridge_stopped)}
SITUATIONS: dict[str, Callable[[PlayedTwin, Command], None]] = {
    each.__name__: each
    for each in (
        nothing,
        fenced,
        quiesced,
        drained,
        both_open,
        neither,
        paused,
        cut,
        killed,
        sick,
        standby_killed,
        moved,
        lose,
        failed_over,
        lose_and_return,
        back_open,
    )
}
# The process of a run dies at so many of its requests: its run is open.
DIED = {
    f"{name} died at {at}": (name, at) for name in ("swapover", "failover", "failback", "fence") for at in (2, 4, 7)
}
# The others at night.
AT_ONCE = ("fenced", "cut", "failed_over", "lose_and_return", "both_open")
LAST = ("failback died at 7",)


@dataclass
class Stage:
    """Twins in one situation, each made anew: a remedy may change all of it."""

    folder: Path
    dr_ctl: Command
    patch: pytest.MonkeyPatch
    topology: str
    situation: str
    made: int = 0

    @contextmanager
    def twin(self) -> Iterator[PlayedTwin]:
        self.made += 1
        place = self.folder / str(self.made)
        place.mkdir()
        with PlayedTwin.up(place / "twin", topology=self.topology) as twin:
            _hurry(twin, place / "runbooks")
            self.patch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
            self.patch.setenv("DR_CTL_STATE_DIR", str(place / "state"))
            if self.situation in DIED:
                operation, at = DIED[self.situation]
                OPERATIONS[operation].before(twin, self.dr_ctl)
                with self.patch.context() as patch:
                    Death(at, after=True).strike(patch)
                    lived(twin, self.dr_ctl, operation)
            else:
                (SITUATIONS | IN_PART)[self.situation](twin, self.dr_ctl)
            yield twin


def _hurry(twin: PlayedTwin, folder: Path) -> None:
    """The runbooks that came with dr-ctl, but that nobody waits a minute until a cut link has caught up."""
    folder.mkdir()
    for path in files(shipped()):
        (folder / path.name).write_text(path.read_text("utf-8").replace("within: 1m", "within: 1s"), encoding="utf-8")
    told = twin.settings_path.read_text(encoding="utf-8")
    settings = json.dumps({**yaml.safe_load(told), "runbooks": str(folder)})
    twin.settings_path.write_text(settings, encoding="utf-8")


def remedies(ended: Ended) -> set[str]:
    """The commands that a result names, in findings and in debts."""
    rows: list[dict[str, Any]] = [*ended.document["findings"], *ended.document["debts"]]
    return {words for row in rows for words in COMMAND.findall(str(row["remedy"]))}


def filled(words: str) -> list[list[str]]:
    """What a person would type: words that stand for something are replaced, SITE by each site in turn."""
    sites = ("london", "paris") if "SITE" in words.split() else ("",)
    return [[{**WORDS, "SITE": site}.get(word, word) for word in shlex.split(words)] for site in sites]


def errors(dr_ctl: Command) -> set[str]:
    return {each["id"] for each in dr_ctl("status").document["findings"] if each["severity"] == "error"}


@pytest.mark.parametrize(
    ("topology", "situation"),
    [
        *(pytest.param(MIRROR, each, marks=() if each in AT_ONCE else pytest.mark.deep) for each in SITUATIONS),
        *(pytest.param(MIRROR, each, marks=() if each in LAST else pytest.mark.deep) for each in DIED),
        # The plugin keeps a site closed while the other one is active.
        *(
            pytest.param(CONTINUITY, each, marks=pytest.mark.deep)
            for each in (*SITUATIONS, *DIED)
            if each not in ("back_open", "both_open")
        ),
        *(pytest.param(BRIDGES, each, marks=pytest.mark.deep) for each in (*SITUATIONS, *DIED)),
        *(pytest.param(BRIDGES, each, marks=() if each == "queue_fenced" else pytest.mark.deep) for each in IN_PART),
    ],
)
def test_a_remedy_that_is_run_makes_nothing_worse(
    tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch, topology: str, situation: str
) -> None:
    if topology == CONTINUITY:
        prompt(monkeypatch)
    impatient(monkeypatch, rates_s=0.01, link_attach_s=0.5, catch_up_s=0.5)
    stage = Stage(tmp_path, inside, monkeypatch, topology, situation)
    named: dict[str, str] = {}
    with stage.twin(), quick(monkeypatch):
        for look in LOOKS:
            dry = () if look[0] in ("status", "validate", "verify") else ("--dry-run",)
            named |= {words: " ".join(look) for words in remedies(inside(*look, *dry))}
    for words, printed_by in named.items():
        for typed in filled(words):
            with stage.twin() as twin, quick(monkeypatch):
                _run(twin, inside, typed, printed_by)


def _run(twin: PlayedTwin, dr_ctl: Command, typed: list[str], printed_by: str) -> None:
    before, wrong = set(serving(twin)), errors(dr_ctl)
    told = f"`{' '.join(typed)}`, as {printed_by} says"
    if typed[:2] == ["runs", "show"] or typed[0] in ("monitor", "rpo"):
        return

    ended = dr_ctl(*typed, *_agreed(typed))

    assert ended.code not in (1, 2), (told, ended.document)
    after = set(serving(twin))
    assert len(after) <= max(len(before), 1), (told, ended.document)
    assert not before or after, (told, ended.document)
    assert errors(dr_ctl) <= wrong, (told, ended.document)


def _agreed(typed: list[str]) -> list[str]:
    looks = typed[0] in ("status", "validate", "verify", "runs", "explain", "plan") or "--dry-run" in typed
    return [] if looks else ["--yes"]
