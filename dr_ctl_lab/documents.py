"""Documents of `dr-ctl lab` and `dr-ctl demo` as types, for `dr-ctl schema`."""

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import TypedDict

from dr_ctl.application.documents.parts import BoundsDocument, Nothing
from dr_ctl_lab.lab.ledger import Counts, Gap
from dr_ctl_lab.lab.status import LabStatus


class UpData(TypedDict):
    settings: str
    lab: LabStatus


class LedgerData(TypedDict):
    """The fate of every message of a load: how many of each kind."""

    clean: bool
    drained: bool
    counts: Counts
    lost: int
    duplicates: int
    redelivered: int
    in_doubt: int
    in_doubt_arrived: int
    unexpected: int
    receive_gap: Gap
    receive_gaps: dict[str, Gap]
    send_gap: Gap


class LossData(TypedDict):
    bounds: BoundsDocument
    before_return: LedgerData
    ledger: LedgerData


class DemoData(TypedDict):
    ledger: LedgerData
    failover: LossData
    report: str | None
    reports: list[str]
    codes: dict[str, int]


DOCUMENTS: Final[Mapping[str, Any]] = {
    "lab up": UpData,
    "lab status": LabStatus,
    "lab load": LedgerData,
    **dict.fromkeys(("lab down", "lab kill", "lab start", "lab cut", "lab heal"), Nothing),
    "demo": DemoData,
}
