"""The time of a reading and of a move from fence to open listeners, by number of queues."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import requests

from bench.moves import environment
from bench.table import Figure
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.settings.artemis import ArtemisBroker
from dr_ctl.settings.loader import load
from dr_ctl.topologies.artemis.reading import QUEUE
from dr_ctl.topologies.mirror.reading import READS, Observer
from dr_ctl_lab.lab.lab import Lab

SIZES, MOST = (1, 1_000, 10_000), 10_000
LOOKS, MOVES, BEHIND = 7, 4, 5_000
DELAYS_MS = (50, 150)


def measured() -> list[Figure]:
    items = []
    for size in SIZES:
        with lab_of(size) as (lab, folder):
            items += _looks(lab) if size == MOST else []
            items += [_moves(lab, folder, size, behind) for behind in (0, BEHIND)]
    for delay_ms in DELAYS_MS:
        with lab_of(1_000, delay_ms) as (lab, folder):
            items.append(_moves(lab, folder, 1_000, 0, f", {delay_ms} ms each way"))
    return items


@contextmanager
def lab_of(size: int, delay_ms: float = 0.0) -> Iterator[tuple[Lab, str]]:
    queues = ("orders.in", *(f"load.{number}" for number in range(size - 1)))
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab", queues=queues, delay_ms=delay_ms) as lab:
        yield lab, folder


def _looks(lab: Lab) -> list[Figure]:
    """Measure readings in this process, without the start of Python."""
    site = lab.site("london")
    body: dict[str, Any] = {
        "type": "read",
        "mbean": 'org.apache.activemq.artemis:broker="london",component=addresses,address=*,subcomponent=queues,'
        "routing-type=*,queue=*",
        "attribute": list(QUEUE),
        "config": {"ignoreErrors": True, "includeRequest": False, "canonicalNaming": True},
    }
    http = requests.Session()
    http.auth, http.headers["Origin"] = (site.admin.user, site.admin.password), "http://127.0.0.1"
    payload = load(lab.settings_path)
    [broker] = payload.settings.sites["london"].brokers
    assert isinstance(broker, ArtemisBroker)
    assert broker.jolokia is not None
    ours, bare = [], []
    with closing(Observer(READS, payload, Timeouts(), Path())) as observer:
        access = observer.brokers["london"]["orders-1"]
        for _ in range(LOOKS + 2):  # the first ones warm the broker
            began = time.perf_counter()
            view = access.read()
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            answer = json.loads(http.post(broker.jolokia, json=body, timeout=30).text)
            bare.append(time.perf_counter() - began)
            assert len(view.business) >= MOST <= len(answer["value"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(
            f"one look at {MOST} queues beside the bare read of them", "s", tuple(ours[2:]), tuple(bare[2:]), goal=1.2
        ),
        Figure(f"memory of the process that looked at {MOST} queues, at most", "MiB", (memory,)),
    ]


def _moves(lab: Lab, folder: str, size: int, behind: int, suffix: str = "") -> Figure:
    """The time from the first call of the fence to the answer that the listeners are open."""
    took = []
    for number in range(MOVES):
        target = ("paris", "london")[number % 2]
        if behind:
            with lab.load(2_000, queues=("orders.in",), consumers=0) as clients:
                lab.cut(("london", "paris")[number % 2])
                clients.wait_for(behind, within_s=120)
                clients.pause_producing()
                lab.heal()
                took.append(_move(lab, folder, target))
            _empty(lab, target)
        else:
            took.append(_move(lab, folder, target))
    name = f"mirror of {size} queue(s), {behind} behind{suffix}: fence to open listeners"
    return Figure(name, "s", tuple(took[2:] if len(took) > 2 else took))


def _empty(lab: Lab, site: str) -> None:
    with lab.load(1, queues=("orders.in",), producers=0, consumers=4) as clients:
        clients.wait_until(lambda _: lab.admin(site).depth("orders.in") == 0, within_s=120, goal="it is consumed")


def _move(lab: Lab, folder: str, target: str) -> float:
    command = [sys.executable, "-m", "dr_ctl", "swapover", "--to", target, "--yes", "--json", "--timeout", "5m"]
    ended = subprocess.run(command, check=True, env=environment(lab, folder), capture_output=True, text=True)
    run = Path(json.loads(ended.stdout)["data"]["report"]).parent
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    calls = [line for line in lines if line["kind"] in ("intent", "result")]
    fence = next(entry for entry in calls if entry["step"].endswith("-fence"))
    opened = [entry for entry in calls if entry["step"].endswith("-activate") and entry["kind"] == "result"]
    return (datetime.fromisoformat(opened[0]["time"]) - datetime.fromisoformat(fence["time"])).total_seconds()
