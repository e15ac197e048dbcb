"""The table of all figures with their yardsticks: printed, stored as JSON, and written into the docs."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
JSON_FILE = HERE / "measured.json"
DOCS = HERE.parent / "docs" / "measured.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
_HEAD = ("figure", "dr-ctl: median (least to most)", "yardstick: median (least to most)", "ratio", "goal", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """Measured values of dr-ctl and of its yardstick; `goal` limits the ratio, `most` the median."""

    name: str
    unit: str
    ours: tuple[float, ...]
    yardstick: tuple[float, ...] = ()
    goal: float | None = None
    most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float | None:
        return self.median / statistics.median(self.yardstick) if self.yardstick else None

    @property
    def is_met(self) -> bool:
        by_ratio = self.goal is None or self.ratio is None or self.ratio <= self.goal
        return by_ratio and (self.most is None or self.median <= self.most)

    def cells(self) -> tuple[str, ...]:
        goals = [f"≤ {self.goal:g} times" if self.goal is not None else "", self._limit(self.most) if self.most else ""]
        has_goal = self.goal is not None or self.most is not None
        return (
            self.name,
            self._spread(self.ours),
            self._spread(self.yardstick) if self.yardstick else "",
            f"{self.ratio:.2f}" if self.ratio is not None else "",
            ", ".join(filter(None, goals)),
            ("met" if self.is_met else "missed") if has_goal else "",
        )

    def _limit(self, most: float) -> str:
        return f"≤ {most:g} {self.unit}"

    def _spread(self, values: Sequence[float]) -> str:
        return f"{_short(statistics.median(values))} {self.unit} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def show(figures: Sequence[Figure]) -> None:
    """Print one line for each figure."""
    for figure in figures:
        print(" | ".join(filter(None, figure.cells())), flush=True)


def keep(figures: Sequence[Figure]) -> None:
    """Add figures to the stored ones, in the JSON file and in the table of the docs."""
    stored = json.loads(JSON_FILE.read_text()) if JSON_FILE.exists() else {}
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[1]:.1f}"
    for figure in figures:
        stored[figure.name] = {**asdict(figure), "median": figure.median, "ratio": figure.ratio, "machine": machine}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(item)}" for name, item in stored.items())
    JSON_FILE.write_text(f"{{\n{rows}\n}}\n")  # one line for each figure: some have thousands of values
    read = [Figure(**{key: item[key] for key in Figure.__slots__}) for item in stored.values()]
    lines = [row(_HEAD), row(["---"] * len(_HEAD)), *(row(item.cells()) for item in read)]
    before, _, tail = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = tail.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
