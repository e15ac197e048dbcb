"""Documents of the estimate, its backtest, and ledgers."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from dr_ctl.application.documents.parts import Moment, words
from dr_ctl.rpo.core.quantities import Calibration, Horizon, Quantity
from dr_ctl.rpo.estimate.result import Verdict

VerdictWord = Annotated[str, words(*(each.value for each in Verdict))]
CalibrationWord = Annotated[str, words(*(each.value for each in Calibration))]


class WindowDocument(TypedDict):
    """The looks that the figures rest on."""

    begin: Annotated[Moment, Field(alias="from")]
    to: Moment
    samples: int
    covered_s: float


class FiguresDocument(TypedDict):
    """Of all, of a flow or of a class, if the site died: bounds, with what is likely beside them."""

    loss: Quantity
    age_s: Quantity
    duplicates: Quantity
    drain_s: Quantity
    horizon: Horizon
    unexplained: float | None
    loss_risk: float | None
    duplicate_risk: float | None
    recovery_point_s: float | None
    recovery_time_s: float | None


class FlowDocument(FiguresDocument):
    site: Annotated[str, Field(alias="from")]
    pair: str
    name: str


class ClassDocument(FiguresDocument):
    queues: list[str]
    verdict: VerdictWord


class QueueShareDocument(TypedDict):
    """A queue in which messages were likely to be lost."""

    pair: str
    name: str
    share: Annotated[float, Field(description="of all that was likely lost, by how long it was")]
    most: int


class OutageDocument(TypedDict):
    """A site that was seen in that role after it was seen serving last."""

    last_served: Moment
    role: str
    seen_at: Moment


class EstimateData(TypedDict):
    site: str | None
    read_at: Moment | None
    stale_s: float | None
    window: WindowDocument | None
    verdict: Annotated[VerdictWord | None, Field(description="null without objectives")]
    total: FiguresDocument | None
    flows: list[FlowDocument]
    classes: list[ClassDocument]
    queues: Annotated[list[QueueShareDocument], Field(description="those in which most was likely lost")]
    advice: Annotated[list[str], Field(description="what would shorten the loss, in sentences")]
    outage: Annotated[OutageDocument | None, Field(description="the figures are those of before it")]


class StoredEstimate(EstimateData):
    """The estimate as a monitor stored it."""

    made_at: Moment
    age_s: float


class ErrorDocument(TypedDict):
    bias: float | None
    error: float | None


class BoundTestDocument(TypedDict):
    """How often the bound held."""

    moments: int
    coverage: float | None
    mean: float | None
    excess: float | None
    likely: ErrorDocument
    verdict: CalibrationWord


class QuantileTestDocument(TypedDict):
    metric: str
    horizon_s: float | None
    quantile: str
    nominal: float
    coverage: float | None
    width: float | None
    folds: int
    verdict: CalibrationWord


class SpanDocument(TypedDict):
    begin: Annotated[Moment, Field(alias="from")]
    to: Moment


class BacktestData(TypedDict):
    site: str | None
    window: SpanDocument | None
    verdict: CalibrationWord
    bound: BoundTestDocument | None
    quantiles: list[QuantileTestDocument]


class IdsDocument(TypedDict):
    count: int
    file: Annotated[str, Field(description="the ids, one a line")]
    queues: dict[str, int]


class ReconcileData(TypedDict):
    lost: IdsDocument
    doubled: IdsDocument
    recovered: IdsDocument
    unexpected: IdsDocument
    unknown: IdsDocument
    events: dict[str, int]
