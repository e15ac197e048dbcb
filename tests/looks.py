"""A recorded history, without a monitor."""

from datetime import timedelta
from pathlib import Path

from dr_ctl.core.system import system
from dr_ctl.rpo.history.row import Row
from tests.rpo.files import write


def looked(folder: Path, ago_s: float = 0.0) -> None:
    """Write samples of London over ten seconds, until `ago_s` ago, with empty outflows, beside the settings file."""
    now = system().now() - timedelta(seconds=ago_s)
    rows = []
    for before_s in (10, 5, 0):
        at = now - timedelta(seconds=before_s)
        common = {"site": "london", "ts": at, "pair": "orders-1", "start": "1"}
        rows.append(Row(kind="site", name="serving", **common))  # type: ignore[arg-type]
        for kind in ("mirror", "acks", "mixed"):
            flow = {"depth": 0, "delivering": 0, "added": 100, "removed": 100, "link": True}
            rows.append(Row(kind=kind, name="*", **common, **flow))  # type: ignore[arg-type]
    write(rows, folder / "history")
