"""Memory, processor time and disk of a `monitor`: ten minutes of ten thousand queues, and a minute of fewer."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

from bench.moves import environment
from bench.size import MOST, lab_of
from bench.table import Figure
from dr_ctl_lab.played import PlayedTwin

LONG_S, MINUTE_S, SHORT_S, RATE = 600, 60, 20, 100
LOOKS = LONG_S / 5
_HZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Used:
    """A process's memory in MiB (present, largest, private), and processor time."""

    rss: float
    peak: float
    private: float
    cpu_s: float


def measured() -> list[Figure]:
    """Measure with traffic in one queue. Estimates are other processes and not counted. Fail where half of the readings
    are missing."""
    with lab_of(MOST) as (lab, folder), lab.load(RATE, queues=("orders.in",), work_ms=1) as load:
        load.wait_for(RATE)
        used = _watched(environment(lab, folder), LONG_S)
        history = lab.settings_path.parent / "history"
        files = [path for path in history.glob("date=*/site=*/*.parquet") if not path.name.startswith("_")]
        rows = sum(pq.ParquetFile(path).metadata.num_rows for path in files)
        intervals_s = _intervals_s(files)
        bytes_a_row = sum(path.stat().st_size for path in files) / rows
    assert rows > MOST * LOOKS
    middle = len(used) // 2
    first, second = (tuple(item.rss for item in half) for half in (used[:middle], used[middle:]))
    share = 100 * used[-1].cpu_s / LONG_S
    label = f"monitor of {MOST} queues a site for {LONG_S // 60} minutes"
    return [
        Figure(f"{label}: memory at most", "MiB", (used[-1].peak,), most=143),
        Figure("monitor of 1 queue a site: memory at most", "MiB", (_of_one_queue()[-1].peak,)),
        Figure(
            f"{label}: of that its own, without the pages of libraries", "MiB", (max(item.private for item in used),)
        ),
        Figure(f"{label}: memory of the second half beside the first", "MiB", second, first, goal=1.1),
        Figure(f"{label}: of a core", "%", (share,), most=15),
        Figure(f"{label}: history, bytes a row", "bytes", (bytes_a_row,), most=40),
        Figure(f"{label}: between two readings of the outflows", "s", intervals_s, most=0.3),
    ]


def minute() -> list[Figure]:
    """Measure a minute of a monitor of few and of many queues, with its history on disk."""
    figures = []
    for queues in (1, 100, MOST):
        with lab_of(queues) as (lab, folder), lab.load(RATE, queues=("orders.in",), work_ms=1) as load:
            load.wait_for(RATE)
            used = _watched(environment(lab, folder), MINUTE_S)
            history = lab.settings_path.parent / "history"
            size = sum(path.stat().st_size for path in history.rglob("*") if path.is_file())
        label = f"a minute of a monitor of {queues} queue(s) a site"
        figures += [
            Figure(f"{label}: processor time", "s", (used[-1].cpu_s,)),
            Figure(f"{label}: memory at most", "MiB", (used[-1].peak,)),
            Figure(f"{label}: history on disk", "KiB", (size / 1024,)),
        ]
    return figures


def _of_one_queue() -> list[Used]:
    with tempfile.TemporaryDirectory() as folder, PlayedTwin.up(Path(folder) / "sites") as twin:
        return _watched(environment(twin, folder), SHORT_S)


def _watched(env: Mapping[str, str], duration_s: int) -> list[Used]:
    command = [sys.executable, "-m", "dr_ctl", "monitor", "--for", f"{duration_s}s", "--quiet"]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
        used = list(_samples(process))
    assert process.returncode == 0
    return used


def _samples(process: subprocess.Popen[bytes]) -> Iterator[Used]:
    """Sample a process once a second while it runs."""
    while process.poll() is None:
        try:
            text = Path(f"/proc/{process.pid}/status").read_text()
            ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            return
        if "VmRSS:" not in text:
            return  # it has ended and is a zombie
        rss, most, own = (int(text.partition(f"{key}:")[2].split()[0]) / 1024 for key in ("VmRSS", "VmHWM", "RssAnon"))
        yield Used(rss, most, own, (int(ticks[11]) + int(ticks[12])) / _HZ)
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            continue


def _intervals_s(files: Sequence[Path]) -> tuple[float, ...]:
    """The intervals between readings of the serving site."""
    moments = set()
    for path in [path for path in files if path.parent.name == "site=london"]:
        mixed = pq.read_table(path, columns=["ts"], filters=[("kind", "=", "mixed")], partitioning=None)
        moments |= set(mixed["ts"].to_pylist())
    return tuple((after - before).total_seconds() for before, after in pairwise(sorted(moments)))
