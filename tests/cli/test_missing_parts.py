"""A machine without Java, Maven, numpy, pyarrow or pyspark: what needs one of them says so, with the command that
installs it, and all else works."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.machine import without
from dr_ctl_lab.lab.distribution import maven
from tests.cli.conftest import Shell
from tests.cli.sites import Sites
from tests.documents import hold
from tests.looks import looked
from tests.report.scribe import NAME, done

# Commands one after the other in one process.
ALONE = """
import contextlib, io, json, sys
from dr_ctl.cli.app import run

for line in sys.stdin.read().splitlines():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run([*json.loads(line), "--json"])
    print(out.getvalue().splitlines()[-1])
"""
ALL = ("numpy", "pyarrow", "pyspark", "py4j", "pandas")
PIP = f"`{sys.executable} -m pip install "


def ended(*commands: str, missing: Sequence[str] = ALL) -> list[dict[str, Any]]:
    """The document of each command, without these packages, there and in each process that it starts."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).with_name("without")), "WITHOUT": " ".join(missing)},
        input="\n".join(json.dumps(command.split()) for command in commands),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(documents) == len(commands), done.stderr
    for document in documents:
        hold(document)
    return documents


@pytest.mark.wire
def test_a_failover_works_without_the_packages_that_read_the_history(dr_ctl: Shell, sites: Sites) -> None:
    looked(dr_ctl.folder)
    sites.lose()

    refused, done = ended(
        "failover --to paris --yes", "failover --to paris --yes --accept-loss unknown --accept-duplicates unknown"
    )

    assert (refused["exit_code"], refused["data"]["bounds"]["lost"]["at_most"]) == (11, None)
    assert done["exit_code"] == 0, done
    assert done["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
    assert ("DR-PART-001", "warning") in [(finding["id"], finding["severity"]) for finding in done["findings"]]


@pytest.mark.wire
def test_a_host_without_pyspark_moves_and_knows_the_loss_bound_and_how_to_install_it(
    dr_ctl: Shell, sites: Sites
) -> None:
    looked(dr_ctl.folder)

    status, validate, moved, estimate = ended(
        "status", "validate", "swapover --to paris --yes", "rpo estimate", missing=("pyspark", "py4j")
    )

    assert (status["exit_code"], status["data"]["bounds"]["lost"]["at_most"]) == (0, 0)
    [result] = [finding for finding in validate["findings"] if finding["id"].startswith("DR-PART")]
    assert (validate["exit_code"], result["id"], result["severity"]) == (0, "DR-PART-002", "info")
    assert result["remedy"] == f"{PIP}'pyspark<5,>=4.1'` installs it."
    assert (moved["exit_code"], estimate["exit_code"]) == (0, 3)
    assert [finding["severity"] for finding in moved["findings"] if finding["id"] in ("DR-PART-002", "DR-RPO-009")] == [
        "info"
    ]


def test_schemas_examples_and_past_runs_are_shown_without_them(dr_ctl: Shell, nobody: str) -> None:
    looked(dr_ctl.folder)
    run = done(dr_ctl.run()).folder

    *documents, history = ended(
        *("schema rpo backtest", "init --examples written", "explain missing", "runs list", f"runs show {NAME}"),
        *("runs verify", f"runs report {NAME}", "history"),
    )

    assert [result["exit_code"] for result in (*documents, history)] == [0] * 8, documents
    assert list((dr_ctl.folder / "written").iterdir())
    assert (run / "report.html").exists()
    assert [row["id"] for row in history["findings"]] == ["DR-HISTORY-001"]
    assert [row["run"] for row in history["data"]["history"]] == [NAME]


@pytest.mark.wire
@pytest.mark.deep
def test_all_that_needs_no_history_works_without_them_and_the_rest_is_named(dr_ctl: Shell, sites: Sites) -> None:
    looked(dr_ctl.folder)
    works = {
        **dict.fromkeys(("status", "validate", "validate --offline", "plan swapover --to paris", "runbook lint"), 0),
        "check": 1,
        "verify --to paris": 10,
        "plan failover --to paris --as-if-lost london": 0,
        "failover --to paris --dry-run": 12,
        "swapover --to paris --yes": 0,
        "runs bundle --out bundle.tar.gz": 0,
    }
    lacks = ("monitor --for 1s", "rpo estimate", "rpo backtest", "rpo reconcile ledger.jsonl")

    documents = dict(zip([*works, *lacks], ended(*works, *lacks), strict=True))

    assert {words: documents[words]["exit_code"] for words in works} == works, documents
    rows = [document["text"] for document in documents["validate"]["findings"] if document["id"] == "DR-PART-001"]
    assert [text.partition(" are ")[0] for text in rows] == ["the Python packages numpy and pyarrow"]
    assert "no monitor" not in documents["validate"]["summary"]
    for words in lacks:
        document = documents[words]
        assert (document["exit_code"], document["outcome"]) == (3, "missing"), document
        assert document["findings"][0]["remedy"].startswith(PIP)


@pytest.mark.parametrize(
    ("module", "installs"),
    [
        ("numpy", "'numpy>=2'"),
        ("pyarrow.parquet", "'pyarrow>=18'"),
        ("pyspark.sql", "'pyspark<5,>=4.1'"),
        ("psycopg", "'psycopg[binary]<4,>=3.2'"),
        ("pymysql", "'pymysql<2,>=1.1'"),
    ],
)
def test_a_package_is_installed_with_the_versions_that_fit(module: str, installs: str) -> None:
    fault = without(ModuleNotFoundError(f"No module named {module!r}", name=module))

    assert fault is not None
    assert fault.remedy == f"{PIP}{installs}` installs it."


def test_in_an_environment_of_pipx_it_is_injected_and_a_module_of_dr_ctls_own_that_is_missing_is_a_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "prefix", "/opt/pipx/venvs/dr-ctl")
    fault, *defects = (
        without(ModuleNotFoundError(f"No module named {name!r}", name=name))
        for name in ("numpy", "numpyro", "dr_ctl.gone")
    )

    assert fault is not None
    assert (fault.remedy, defects) == ("`pipx inject dr-ctl 'numpy>=2'` installs it.", [None, None])


def test_without_maven_what_it_fetches_is_named_and_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Exception, match="it fetches a broker, which is not in the cache") as fault:
        maven("a broker", [], tmp_path)

    assert "apt-get install maven" in getattr(fault.value, "remedy", "")
