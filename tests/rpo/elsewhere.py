"""One estimate and one reconciliation on the given master, as one JSON document. Run as a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
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
    answer = estimate(Request(history=history, objectives=objectives, master=master, conf=conf))
    with tempfile.TemporaryDirectory() as out:
        found = reconcile([str(ledger)], Path(out), master=master, conf=conf)
        ids = {kind: part.file.read_text() for kind, part in found.parts.items()}
    data = answer.as_json()
    del data["stale_s"]
    print(json.dumps({"estimate": data, "ids": ids, "events": dict(found.events)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
