"""A state directory without room: refused before the first call, and nothing remains that would be in the way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation


@pytest.fixture
def small_state(dr_ctl: Shell) -> Iterator[None]:
    """The state directory on a file system of 1 MiB; skipped where mounting is not allowed."""
    dr_ctl.state.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "dr-ctl-test", str(dr_ctl.state)]
    with suppress(OSError):
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            yield
            subprocess.run(["umount", str(dr_ctl.state)], check=True)
            return
    pytest.skip("mounting is not allowed here")


@pytest.mark.usefixtures("small_state")
@pytest.mark.parametrize("is_full", [False, True], ids=["too small", "full"])
def test_a_disk_without_room_refuses_the_run(dr_ctl: Shell, installation: Installation, is_full: bool) -> None:
    before = installation.settable
    if is_full:
        with suppress(OSError), (dr_ctl.state / "another.log").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))

    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json", "--quiet")

    assert ended.code == 10, ended.document
    assert "no room on disk" in ended.document["summary"]
    assert "--state-dir" in ended.document["findings"][0]["remedy"]
    assert [told["doors"] for told in installation.settable] == [told["doors"] for told in before]
    assert {operation.partition("(")[0] for operation in installation.changes} <= {
        "createQueue",
        "updateQueue",
        "destroyQueue",
    }
    assert [row["outcome"] for row in dr_ctl("runs", "list", "--json").document["data"]["runs"] if row] in (
        [],
        ["none"],
    )
