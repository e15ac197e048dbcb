"""The adversary of `adversary.py` on each topology: for a moment always, for longer at night, for hours before a
release. `DR_CTL_SEEDS=7,8` takes other seeds, `DR_CTL_STEPS=200` longer scripts, `DR_CTL_SCRIPT=FILE` the steps of a
file; `DR_CTL_SHRINK=1` tries shorter scripts that fail alike."""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dr_ctl.cli.app import run
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import CONTINUITY, MIRROR
from tests.broker.driving import Ended, Stage, end_all
from tests.conftest import Command
from tests.patience import impatient, time_now
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.adversary import Found, Siege
from tests.twin.conftest import OTHERS, prompt
from tests.twin.scripts import script
from tests.twin.test_remedies import hurry as brief

TOPOLOGIES = (MIRROR, *OTHERS)
PATH = os.environ["PATH"]  # with Java, which real brokers need
MOMENT = (1, 10)  # seed, steps
NIGHT = ((2, 100), (3, 100))
CHOSEN = os.environ.get("DR_CTL_SEEDS", ",".join(str(seed) for seed in range(4, 24)))
STEPS = int(os.environ.get("DR_CTL_STEPS", "100"))
CASES = [
    *((topology, *MOMENT) for topology in TOPOLOGIES),
    *(pytest.param(topology, *each, marks=pytest.mark.deep) for topology in TOPOLOGIES for each in NIGHT),
    *(
        pytest.param(topology, int(seed), STEPS, marks=pytest.mark.chaos)
        for topology in TOPOLOGIES
        for seed in CHOSEN.split(",")
    ),
]
REAL = [
    pytest.param(topology, int(seed), STEPS, marks=(needs_plugin,) if topology == CONTINUITY else ())
    for topology in TOPOLOGIES
    for seed in CHOSEN.split(",")[:2]
]


@pytest.fixture
def typed(inside: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """The command line in this process; an agent's last line is its document."""
    del inside  # it has set the scene

    def command(*words: str) -> Ended:
        capsys.readouterr()
        code = run([*words, "--json"], time_now())
        told = capsys.readouterr()
        return Ended(code, json.loads(told.out.splitlines()[-1] if words[0] == "sync" else told.out), told.err)

    return command


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long on a twin."""
    prompt(patch)
    impatient(patch, fence_s=2.0, undo_s=4.0, activate_s=2.0, rates_s=0.01, catch_up_s=0.5, quiesce_s=1.0, settle_s=1.0)
    impatient(patch, link_attach_s=1.0, link_lost_s=0.5, link_between_s=1.0, differs_s=0.5, compared_s=3.0)
    impatient(patch, store_starts_s=3.0, store_ends_s=3.0, greet_s=0.5, flag_s=1.0, last_look_s=0.4, probe_s=2.0)


@contextmanager
def besieged(stage: Stage, typed: Callable[..., Ended], folder: Path) -> Iterator[Siege]:
    folder.mkdir()
    with stage, pytest.MonkeyPatch.context() as patch:
        brief(stage, folder / "runbooks")
        siege = Siege(stage, typed, patch, folder)
        try:
            yield siege
        except Found as found:
            lines = "\n".join(siege.played)
            raise Found(f"{found}\n\nwhat was played, for DR_CTL_SCRIPT:\n{lines}") from found
        finally:
            end_all()


def alike(one: Found, other: Found) -> bool:
    return re.sub(r"\d+", "", str(one))[:30] == re.sub(r"\d+", "", str(other))[:30]


def shorter(steps: Sequence[str], found: Found, play: Callable[[Sequence[str]], None]) -> tuple[Sequence[str], Found]:
    """Leave out as much as can be left out while the end is alike."""
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps), size):
            fewer = [*steps[:at], *steps[at + size :]]
            try:
                play(fewer)
            except Found as again:
                if alike(again, found):
                    steps, found = fewer, again
                    break
        else:
            size //= 2
    return steps, found


def judged(steps: Sequence[str], play: Callable[[Sequence[str]], None]) -> None:
    path = os.environ.get("DR_CTL_SCRIPT")
    if path is not None:
        told = Path(path).read_text("utf-8").splitlines()
        steps = [line.partition("  #")[0] for line in told if line.strip()]
    try:
        play(steps)
    except Found as found:
        if "DR_CTL_SHRINK" not in os.environ:
            raise
        raise shorter(steps, found, play)[1] from None


@pytest.mark.parametrize(("topology", "seed", "steps"), CASES)
def test_an_adversary_finds_nothing_on_a_twin(
    topology: str, seed: int, steps: int, tmp_path: Path, typed: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    count = iter(range(1000))

    def play(told: Sequence[str]) -> None:
        folder = tmp_path / f"play {next(count)}"
        with besieged(PlayedTwin.up(folder / "twin", topology=topology), typed, folder / "siege") as siege:
            siege.play(told)

    judged(script(topology, seed, steps), play)


@pytest.mark.broker
@pytest.mark.chaos
@pytest.mark.parametrize(("topology", "seed", "steps"), REAL)
def test_an_adversary_finds_nothing_on_real_brokers(
    topology: str, seed: int, steps: int, tmp_path: Path, typed: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", PATH)
    with besieged(Lab.up(tmp_path / "lab", topology=topology), typed, tmp_path / "siege") as siege:
        siege.play(script(topology, seed, steps))
