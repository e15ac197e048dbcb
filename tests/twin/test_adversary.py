"""The adversary of `adversary.py` on each topology: for a moment always, for longer at night, for hours before a
release. `DR_CTL_SEEDS=7,8` takes other seeds, `DR_CTL_STEPS=200` longer scripts, `DR_CTL_SCRIPT=FILE` the steps of a
file."""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dr_ctl.cli.app import run
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR
from tests.broker.driving import Ended, Stage, end_all
from tests.conftest import Command
from tests.patience import impatient, time_now
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.adversary import CLASSIC, LINKLESS, Found, Siege
from tests.twin.conftest import OTHERS, prompt
from tests.twin.test_remedies import hurry as brief

TOPOLOGIES = (MIRROR, *OTHERS)
BY_IDS = (BRIDGES, FANOUT)  # their consumers are idempotent, and each is a part of the load
ANY = ("unknown", "0", "50", "100000")
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


# The scripts, from a seed, a step a line. SERVING and WAITING are the sites as they are when a step comes; what a step
# does stands in `adversary.py`, in the method that bears its first word.


def script(topology: str, seed: int, steps: int) -> list[str]:
    """The steps of a seed, equal for equal seeds."""
    chance = random.Random(f"{topology} {seed}")
    told: list[str] = []
    while len(told) < steps:
        told += _some(topology, chance)
    return told[:steps]


def _some(topology: str, chance: random.Random) -> Sequence[str]:
    kinds: list[tuple[int, Callable[[], Sequence[str]]]] = [
        (14, lambda: _traffic(topology, chance)),
        (16, lambda: [_typed(topology, chance)]),
        (4, lambda: _outage(chance)),
        (5, lambda: _trouble(topology, chance)),
        (2, lambda: [f"faults {chance.choice(('SERVING', 'WAITING'))} {chance.randrange(1000)}"]),
        (2, lambda: ["well"]),
        (1, lambda: ["operator"] if topology not in BY_IDS else ["work 20"]),
    ]
    [some] = chance.choices([each for _, each in kinds], [weight for weight, _ in kinds])
    return some()


def _traffic(topology: str, chance: random.Random) -> Sequence[str]:
    queue = chance.choice(("orders.in", "orders.out"))
    end = chance.choice(("commit", "abort", "open"))
    some = [[f"work {chance.randrange(5, 30)}"], [chance.choice(("no producers", "producers"))]]
    if topology not in BY_IDS:
        some += [
            [f"send {queue} {chance.randrange(1, 6)} now {chance.randrange(10)}"],
            [f"send {queue} {chance.randrange(1, 6)} {end} {chance.randrange(10)}"],
            [f"take {queue} {chance.randrange(1, 4)} {chance.choice(('now', 'hold', end))}"],
            ["let go"],
        ]
        if topology in CLASSIC:
            some.append([f"take {queue} 1 refuse"])
    return chance.choice(some)


def _outage(chance: random.Random) -> Sequence[str]:
    """A site is lost, and perhaps replaced, and perhaps taken in again."""
    site = chance.choice(("SERVING", "SERVING", "WAITING"))
    lost = chance.choice((f"kill {site}", f"kill {site}", f"freeze {site}", f"sick {site}"))
    accepted = _accepting(chance, ANY)
    rest = [
        [],
        [_whoever(chance) + f"failover --to WAITING --yes {accepted}"],
        [_whoever(chance) + f"failover --to WAITING --yes {accepted}", "work 10", "well"],
        ["well"],
        [
            _whoever(chance) + f"failover --to WAITING --yes {_accepting(chance, ('unknown', '100000'))}",
            "well",
            "here: failback --to WAITING --yes",
        ],
    ]
    before = [[f"cut {chance.choice(('SERVING', 'WAITING'))}", "work 10"], []]
    return [*chance.choice(before), lost, *chance.choice(rest)]


def _accepting(chance: random.Random, figures: Sequence[str]) -> str:
    figure = chance.choice(figures)
    return f"--accept-loss {figure} --accept-duplicates {figure}"


def _trouble(topology: str, chance: random.Random) -> Sequence[str]:
    some = [f"kill {site}" for site in ("SERVING", "WAITING")] + ["start"]
    if topology not in LINKLESS:
        modes = ("refuse", "hang", "accept")
        some += [f"cut {site} {chance.choice(modes)}" for site in ("SERVING", "WAITING")] + ["heal", "heal"]
    if topology == BROKERSYNC:
        some += [
            "agent stop",
            "agent start",
            "here: sync --for 1s",
            "here: sync --settle --site WAITING --yes --reason because",
        ]
    return [chance.choice(some)]


def _whoever(chance: random.Random) -> str:
    who = chance.choices(("here", "there"), (3, 1))[0]
    manner = chance.choices(("", "dies", "killed"), (20, 6, 1))[0]
    if manner == "dies":
        return f"{who} dies {chance.choice(('before', 'after'))} {chance.randrange(1, 9)}: "
    if manner == "killed":
        return f"{who} killed {chance.randrange(400, 1500)}: "
    return f"{who}: "


def _typed(topology: str, chance: random.Random) -> str:
    site, target = (chance.choice(("SERVING", "WAITING")) for _ in range(2))
    moves = [
        "swapover --to WAITING --yes --timeout 2s",
        "swapover --to WAITING --yes --timeout 2s",
        f"swapover --to {target} --yes --timeout 2s --cut-in-flight",
        f"failover --to {target} --yes {_accepting(chance, ANY)}",
        f"failback --to {target} --yes --timeout 2s",
    ]
    steps = [
        "status",
        f"validate --to {target}",
        f"swapover --to {target} --dry-run",
        f"reinstate {site} --yes --timeout 2s",
        f"quiesce {site} --yes",
        f"fence {site} --yes",
        f"drain --to {target} --yes --timeout 2s",
        f"verify --to {target}",
        f"activate {site} --yes",
        f"unfence {site} --yes",
        "resume --yes",
        "abort --yes",
        f"escalate --yes {_accepting(chance, ANY)} --reason because",
        f"trim {site} --yes",
        f"link restart {site} --yes",
        f"failover --to WAITING --presume-down SERVING --reason because --yes {_accepting(chance, ANY)}",
    ]
    return _whoever(chance) + chance.choice(chance.choice((moves, steps)))


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


@pytest.mark.parametrize(("topology", "seed", "steps"), CASES)
def test_an_adversary_finds_nothing_on_a_twin(
    topology: str, seed: int, steps: int, tmp_path: Path, typed: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    told = script(topology, seed, steps)
    if (path := os.environ.get("DR_CTL_SCRIPT")) is not None:
        lines = Path(path).read_text("utf-8").splitlines()
        told = [line.partition("  #")[0] for line in lines if line.strip()]
    with besieged(PlayedTwin.up(tmp_path / "twin", topology=topology), typed, tmp_path / "siege") as siege:
        siege.play(told)


@pytest.mark.broker
@pytest.mark.chaos
@pytest.mark.parametrize(("topology", "seed", "steps"), REAL)
def test_an_adversary_finds_nothing_on_real_brokers(
    topology: str, seed: int, steps: int, tmp_path: Path, typed: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", PATH)
    with besieged(Lab.up(tmp_path / "lab", topology=topology), typed, tmp_path / "siege") as siege:
        siege.play(script(topology, seed, steps))
