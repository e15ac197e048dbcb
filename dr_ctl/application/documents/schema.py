"""JSON Schema of the settings and of each command's document, made of the types that the documents are held to.

A document may get further keys with a later version; none is taken away or means something else.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from dr_ctl.application.documents import estimates, looks, runs
from dr_ctl.application.documents.parts import Envelope, Nothing, words
from dr_ctl.application.result import Result
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.entries import Entry
from dr_ctl.settings.schema import schema as of_settings

GROUP: Final = "dr_ctl.documents"
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

DATA: Final[Mapping[str, Any]] = {
    "init": looks.InitData,
    "validate": looks.ValidateData | looks.OfflineData,
    "check": looks.CheckData,
    "status": looks.StatusData,
    "verify": looks.VerifyData,
    "plan": runs.PlanData,
    "plan approve": runs.ApproveData,
    **dict.fromkeys(
        (
            "swapover",
            "failover",
            "failback",
            "reinstate",
            "quiesce",
            "fence",
            "drain",
            "activate",
            "unfence",
            "link restart",
            "trim",
            "resume",
            "escalate",
        ),
        runs.OperationData,
    ),
    "abort": runs.AbortData,
    "rehearse": runs.OperationData | runs.TwinData,
    "sync": runs.SettleData,
    "monitor": looks.MonitorData,
    "history": runs.HistoryData,
    "runs list": runs.RunsData,
    "runs show": runs.RunData,
    "runs verify": runs.VerifiedData,
    "runs report": runs.ReportData,
    "runs bundle": runs.BundleData,
    "rpo estimate": estimates.EstimateData,
    "rpo backtest": estimates.BacktestData,
    "rpo reconcile": estimates.ReconcileData,
    "runbook list": looks.RunbooksData,
    "runbook show": looks.RunbookData,
    "runbook lint": looks.LintData,
    "explain": looks.ExplainData,
    "schema": looks.SchemaData,
}
"""`data` of each command's document."""

LINES: Final[Mapping[str, Any]] = {
    "monitor": looks.LookDocument | Envelope[str, runs.OperationData],
    "sync": looks.AgentDocument,
    "runs show": Entry,
}
"""The lines that a command writes before its document, where it goes on."""


class _Untitled(GenerateJsonSchema):
    """Titles that only say the key again are left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def data_types() -> Mapping[str, Any]:
    """`data` by command, with the commands of other packages."""
    return {**DATA, **{name: each for entry in entry_points(group=GROUP) for name, each in entry.load().items()}}


def schema_of(command: str | None) -> dict[str, Any]:
    """The schema of a command's document, of the settings where None; raises `UsageError`."""
    if command is None:
        return of_settings()
    every = data_types()
    if command not in every:
        text = f"{command} is no command with a document" if command else "no command was named"
        raise UsageError(text, remedy=f"The commands are {', '.join(sorted(every))}.")
    envelope: Any = Envelope
    document = envelope[Annotated[str, words(command)], every[command] | Nothing]
    title = f"the document of dr-ctl {command}"
    if (line := LINES.get(command)) is not None:
        document, title = document | line, f"{title}, or a line before it"
    made = TypeAdapter[Any](document).json_schema(schema_generator=_Untitled)
    return {"$schema": DRAFT, **made, "title": title}


def shown(command: str | None) -> Result:
    """The schema as the end of `dr-ctl schema`; as text it is the schema alone."""
    made = schema_of(command)
    return Result(ExitCode.OK, str(made["title"]), data={"schema": made}, closing=json.dumps(made, indent=1))


def write_schemas(folder: Path) -> Sequence[str]:
    """Write all of them into a new folder, and say which."""
    folder.mkdir()
    files = {f"{command.replace(' ', '-')}.json": command for command in data_types()}
    for name, command in {"settings.json": None, **files}.items():
        (folder / name).write_text(json.dumps(schema_of(command), indent=1) + "\n", encoding="utf-8")
    return ["settings.json", *files]
