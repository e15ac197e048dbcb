"""Estimates by all rows and by summaries, and one reconciliation on the given master, as one JSON document. Run as a
process of its own."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.ledgers.reconcile import reconcile


def main(master: str, history: Path, ledger: Path) -> None:
    """Ask with everything that an estimate can be asked for."""
    conf = {}
    if not master.startswith(("local", "sc://")):
        # Where that Spark keeps its own files is not where the history lies.
        conf = {"spark.driver.host": "127.0.0.1", "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1"}
    objectives = Objectives(LossLimit(1000, 60.0), (LossClass(("orders.#",), LossLimit(500)),))
    asked = Request(history=history, objectives=objectives, master=master, conf=conf)
    by_rows, making, by_summaries = (
        estimate(replace(asked, **how)).as_json()  # type: ignore[arg-type]
        for how in ({"settled": False}, {"store": True}, {})
    )
    with tempfile.TemporaryDirectory() as out:
        found = reconcile([str(ledger)], Path(out), master=master, conf=conf)
        ids = {kind: part.file.read_text() for kind, part in found.parts.items()}
    shutil.rmtree(history / "summary")  # the next makes its own
    for data in (by_rows, making, by_summaries):
        del data["stale_s"]
    assert by_rows == making == by_summaries
    print(json.dumps({"estimate": by_summaries, "ids": ids, "events": dict(found.events)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
