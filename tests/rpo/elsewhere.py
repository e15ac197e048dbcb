"""Estimates by all rows and by summaries, and one reconciliation on the given master, as one JSON document. Run as a
process of its own."""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import Store
from dr_ctl.rpo.ledgers.reconcile import reconcile
from dr_ctl.rpo.pipeline.make import reading

OTHER = "DR_CTL_TEST_OTHER"
"""Names a folder with another dr-ctl, which workers are to have."""
MORE = "DR_CTL_TEST_CONF"
"""Further settings of Spark."""


def main(master: str, history: str, near: Path, ledger: Path) -> None:
    """Ask with everything that an estimate can be asked for; with another dr-ctl at the workers tell the refusal."""
    conf = json.loads(os.environ.get(MORE, "{}"))
    if not master.startswith(("local", "sc://")):
        # Where that Spark keeps its own files is not where the history lies.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1"}
    if OTHER in os.environ:
        conf["spark.executorEnv.PYTHONPATH"] = os.environ[OTHER]
    objectives = Objectives(LossLimit(1000, 60.0), (LossClass(("orders.#",), LossLimit(500)),))
    asked = Request(history=history, near=str(near), objectives=objectives, master=master, conf=conf)
    if OTHER in os.environ:
        try:
            with reading() as make:
                estimate(asked, make)
        except EnvironmentFault as refused:
            print(json.dumps({"refused": str(refused)}))
        return
    with reading() as make:
        by_rows, making, by_summaries = (
            estimate(replace(asked, **how), make).data for how in ({"from_summaries": False}, {"store": True}, {})
        )
    with tempfile.TemporaryDirectory() as out:
        found = reconcile([str(ledger)], Path(out), master=master, conf=conf)
        ids = {kind: part.file.read_text() for kind, part in found.parts.items()}
    store = Store.of(history)
    for name in store.listed("summary"):
        store.remove(name)  # the next makes its own
    for data in (by_rows, making, by_summaries):
        del data["stale_s"]
    assert by_rows == making == by_summaries
    print(json.dumps({"estimate": by_summaries, "ids": ids, "events": dict(found.events)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
