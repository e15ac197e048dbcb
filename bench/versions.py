"""Runs the stories on real brokers of every version, and writes the table of docs/versions.md.

python -m bench.versions [VERSION ...]     default: all that tests/stories name, and those that labs have by themselves
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from bench.table import row
from dr_ctl_lab.lab.kinds import KINDS
from tests.stories.test_story import TOPOLOGIES, VERSIONS

HERE: Final = Path(__file__).parent
KEPT: Final = HERE / "versions.json"
DOCS: Final = HERE.parent / "docs" / "versions.md"
STORY: Final = "tests/stories/test_story.py::test_a_service_moves_there_and_back_loses_a_site_and_takes_it_in_again"
BEGIN, END = "<!-- made: versions -->", "<!-- end -->"
HEAD: Final = ("topology", "brokers", "the story", "on")


def default_version(topology: str) -> str:
    """The default version of a topology's lab."""
    distribution = KINDS.named(topology).distribution
    assert distribution is not None
    return distribution.version


def stories() -> Mapping[tuple[str, str], str]:
    """The id of each story on brokers, by topology and version."""
    by_name = {(topology, default_version(topology)): f"{topology} on brokers" for topology in TOPOLOGIES}
    return by_name | {
        (name, version): f"{name} {version}" for version, topologies in VERSIONS.items() for name in topologies
    }


def ran(ident: str) -> str:
    """Run a story; return its end, with its time where it passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-m", "", f"--junitxml={report}", f"{STORY}[{ident}]"]
        subprocess.run(words, cwd=HERE.parent, check=False)
        [case] = ET.parse(report).iter("testcase")
    if case.find("skipped") is not None:
        return "skipped"
    failed = case.find("failure") is not None or case.find("error") is not None
    return "failed" if failed else f"passed, {float(case.get('time', 0)):.0f} s"


def main(wanted: Sequence[str]) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    known = stories()
    for (topology, version), ident in known.items():
        if wanted and version not in wanted:
            continue
        ended = ran(ident)
        print(f"{topology} {version}: {ended}", flush=True)
        if ended != "skipped":
            kept[f"{topology} {version}"] = {"ended": ended, "on": f"{datetime.now(UTC):%Y-%m-%d}"}
    kept = {name: kept[name] for name in (" ".join(name) for name in known) if name in kept}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    rows = [row((*name.split(" "), item["ended"], item["on"])) for name, item in kept.items()]
    before, _, tail = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    table = "\n".join([row(HEAD), row(["---"] * len(HEAD)), *rows])
    DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{tail.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
