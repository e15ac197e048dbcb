"""Documents of `dr-ctl lab` and `dr-ctl demo` as types, for `dr-ctl schema`."""

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import TypedDict

from dr_ctl.application.documents import Nothing
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl_lab.lab.ledger import Verdict
from dr_ctl_lab.lab.status import LabStatus


class UpData(TypedDict):
    settings: str
    lab: LabStatus


class LossData(TypedDict):
    bounds: Bounds
    before_return: Verdict
    ledger: Verdict


class DemoData(TypedDict):
    ledger: Verdict
    failover: LossData
    report: str | None
    reports: list[str]
    codes: dict[str, int]


DOCUMENTS: Final[Mapping[str, Any]] = {
    "lab up": UpData,
    "lab status": LabStatus,
    "lab load": Verdict,
    **dict.fromkeys(("lab down", "lab kill", "lab start", "lab cut", "lab heal"), Nothing),
    "demo": DemoData,
}
