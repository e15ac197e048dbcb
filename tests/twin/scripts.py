"""The scripts of the adversary: from a seed, a step a line. SERVING and WAITING are the sites as they are when a step
comes; what a step does stands in `adversary.py`, in the method that bears its first word."""

import random
from collections.abc import Callable, Sequence

from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, FANOUT, SHARED_STORE

LINKLESS = (FANOUT, SHARED_STORE)
BY_IDS = (BRIDGES, FANOUT)  # their consumers are idempotent, and each is a part of the load
CLASSIC = (BROKERSYNC, SHARED_STORE)
ANY = ("unknown", "0", "50", "100000")


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
