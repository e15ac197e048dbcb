"""Commands on a history in an object store: asked on another machine, and with a store that is silent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dr_ctl.core.clock import growing_s
from dr_ctl.rpo.history.store import Store
from dr_ctl_lab.played import PlayedTwin
from tests.conftest import Command
from tests.rpo.object_store import KEYS, s3_server, s3a

pytestmark = [pytest.mark.deep, pytest.mark.spark]


def elsewhere(twin: PlayedTwin, url: str, near: str = "near") -> Path:
    """Have the settings name a store, with the folder beside it."""
    told = yaml.safe_load(twin.settings_path.read_text())
    told["history"] = {"path": url, "near": near, "every": "1s"}
    told["spark"] = {"master": "local[2]", "conf": s3a()}
    twin.settings_path.write_text(yaml.safe_dump(told))
    return twin.settings_path.parent / near


def test_a_failover_is_priced_from_the_store_and_without_it(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    with s3_server() as (url, process):
        near = elsewhere(twin, url)
        words = [sys.executable, "-m", "dr_ctl", "--config", str(twin.settings_path), "monitor", "--for", "5s"]
        with twin.load(50):
            watched = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "PATH": ""})
        assert f"written to {url.partition('?')[0]}" in watched.stdout
        names = Store.of(url).listed()
        assert {name.rpartition("/")[0].rpartition("/")[2] for name in names if name.startswith("date=")} == {
            "site=london",
            "site=paris",
        }
        assert list(near.glob("date=*/site=london/*.parquet"))

        estimated = dr_ctl("rpo", "estimate", "--site", "london")
        assert estimated.document["data"]["total"]["loss"]["max"] is not None
        assert (near / "_estimate-london.json").exists()
        told = dr_ctl("history")
        assert told.document["data"]["history"][0]["serving"] == "london"

        twin.kill("london")
        elsewhere(twin, url, "another machine's")
        of_store = dr_ctl("failover", "--to", "paris", "--accept-loss", "0", "--dry-run")
        elsewhere(twin, url)
        process.send_signal(signal.SIGSTOP)
        began = growing_s()
        of_here = dr_ctl("failover", "--to", "paris", "--accept-loss", "0", "--dry-run")
        took_s = growing_s() - began
        elsewhere(twin, url, "a machine without looks")
        ids = {each["id"] for each in dr_ctl("validate").document["findings"]}

    bounds = [each.document["data"]["bounds"] for each in (of_store, of_here)]
    assert bounds[0]["lost"]["at_most"] is not None
    assert bounds[0]["lost"]["read_at"] == bounds[1]["lost"]["read_at"]
    texts = [each.document["findings"][0]["text"] for each in (of_store, of_here)]
    assert ["rest on what lies in" in text for text in texts] == [False, True]
    assert took_s < 15
    # Whether a monitor looks nobody can tell there.
    assert "DR-RPO-032" in ids
    assert "DR-MON-002" not in ids
