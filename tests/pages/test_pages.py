"""The pages that go from nothing to a rehearsed move, typed as they stand there."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.cli.test_help import whole, why_not
from tests.pages.machine import machine, sections

# What runs in the end, and where its state lies.
PAGES: Final = {
    "on-hosts.md": ("dr-ctl-monitor.service dr-ctl-rehearsal.timer", "var/lib/dr-ctl"),
    "on-kubernetes.md": ("pod-dr-ctl.service", "run/cluster/claim/dr-ctl"),
}
LEFT_TO_PEOPLE: Final = "2. Prepare both brokers"
COMMAND: Final = re.compile(r"(?:[A-Z_]+=\$\(.+?\) +)*(?:\S*/bin/|kubectl exec .+ -- )?dr-ctl (.+)")


@pytest.mark.parametrize("page", PAGES)
def test_each_line_can_be_typed(page: str) -> None:
    typed = [block for of in sections(page).values() for block in of]

    for block in typed:
        subprocess.run(["bash", "-n"], input=block, text=True, check=True, timeout=10)
    lines = "".join(typed).replace("\\\n", "").splitlines()
    commands = [found[1] for line in lines if (found := COMMAND.fullmatch(line))]
    assert len(commands) > 10
    assert [(words, why) for words in commands if (why := why_not(shlex.split(words), whole()))] == []


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("page", PAGES)
def test_a_page_ends_with_a_monitored_pair_and_a_rehearsed_move(tmp_path: Path, page: str) -> None:
    told, (units, state) = "", PAGES[page]
    with machine(tmp_path / "machine.log") as host:
        host.create_brokers()
        for title, typed in sections(page).items():
            if title == LEFT_TO_PEOPLE:
                assert typed == []
                host.prepare_brokers()
            for block in typed:
                if "swapover --to paris --yes" in block:
                    host.client("producer", 20)
                told += host.type(block, outside="pip install" in block)
        host.client("consumer", 20)
        host.type(f"systemctl is-active {units}")
        assert list((host.root / state).rglob("history/**/*.parquet"))
        told += host.type("journalctl --unit=dr-ctl-rehearsal --output=cat")
    for end in ("10 message(s) went the whole path of each pair", "verified: paris serves", "verified: london serves"):
        assert end in told
    assert "SUCCESS: " in told
