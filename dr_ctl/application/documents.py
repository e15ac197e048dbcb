"""JSON Schema of the settings and of each command's document, made from the classes that write the documents. Later
versions may add keys to a document, but not remove a key or change its meaning.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from importlib import import_module
from importlib.metadata import entry_points
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import Field, TypeAdapter, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema

from dr_ctl.application.result import Envelope, Result
from dr_ctl.core.document import derived_of, key
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.operations import ACTIVATE, ALL, DRAIN, FENCE, QUIESCE, RESTART, TRIM, UNFENCE
from dr_ctl.settings.loader import schema as of_settings

GROUP: Final = "dr_ctl.documents"
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

Nothing = Annotated[dict[str, Any], Field(max_length=0, description="where the command ended before it had any data")]
"""An object without keys."""


@dataclass(frozen=True, slots=True)
class SchemaData:
    schema: Mapping[str, Any] = field(metadata=key(description="a JSON Schema, draft 2020-12"))


_RUN: Final = "application.execution:OperationData"
DATA: Final[Mapping[str, str]] = {
    "init": "application.init:InitData",
    "validate": "application.readiness:ValidateData application.readiness:OfflineData",
    "check": "application.status:CheckData",
    "status": "application.status:StatusData",
    "verify": "application.readiness:VerifyData",
    "plan": "application.plans:PlanData",
    "plan approve": "application.plans:ApproveData",
    **dict.fromkeys((*ALL, QUIESCE, FENCE, DRAIN, ACTIVATE, UNFENCE, RESTART, TRIM, "resume", "escalate"), _RUN),
    "abort": "application.run:AbortData",
    "rehearse": f"{_RUN} application.rehearsing:TwinData",
    "sync": "application.syncing:SettleData",
    "monitor": "agents.exposing:MonitorData",
    "maintenance": "application.maintenance:MaintenanceData",
    "history": "application.history:HistoryData",
    "runs list": "application.history:RunsData",
    "runs show": "application.history:RunData",
    "runs verify": "application.history:VerifiedData",
    "runs report": "application.history:ReportData",
    "runs bundle": "application.bundling:BundleData",
    "rpo estimate": "rpo.estimate.result:Estimate rpo.estimate.result:NO_ESTIMATE",
    "rpo backtest": "rpo.estimate.result:Backtest rpo.estimate.result:NO_BACKTEST",
    "rpo reconcile": "rpo.ledgers.result:Reconciled",
    "runbook list": "application.installation:RunbooksData",
    "runbook show": "application.installation:RunbookData",
    "runbook lint": "application.installation:LintData",
    "explain": "application.explaining:Entry application.explaining:GlossaryEntry",
    "schema": "application.documents:SchemaData",
}
"""The types that `data` of each command's document may have, as `module:name`; a constant means just that value."""

LINES: Final[Mapping[str, str]] = {
    "monitor": f"agents.exposing:Sample application.maintenance:MaintenanceData {_RUN}",
    "sync": "agents.sync:SyncStatus",
    "runs show": "engine.journal:Entry",
}
"""The types of the lines that a command writes before its document."""


class _OfDocuments(GenerateJsonSchema):
    """Describes the documents that `document` writes, without titles, which only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().datetime_schema(schema), "description": "ISO 8601, in UTC"}

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made, of = super().dataclass_schema(schema), schema["cls"]
        inner = schema["schema"]
        types = {member["name"]: member["schema"] for member in inner.get("schema", inner)["fields"]}
        made.pop("additionalProperties", None)
        if not str(of.__doc__).startswith(f"{of.__name__}("):  # the default docstring of a dataclass
            made["description"] = str(of.__doc__).replace("None", "null")
        properties, required = {**made.get("properties", {})}, list[str]()
        for member in fields(of):
            name, how = member.metadata.get("alias", member.name), member.metadata
            if "shape" in how:
                shown = self.generate_inner(TypeAdapter(how["shape"]).core_schema)
                properties[name] = {**shown, "description": how["description"]} if "description" in how else shown
            if "flat" in how:
                flat = self._flat(types[member.name] if how["flat"] is True else TypeAdapter(how["flat"]).core_schema)
                properties.pop(name)
                properties |= flat.get("properties", {})
                required += () if "optional" in how else flat.get("required", ())
                made |= {word: value for word, value in flat.items() if word == "additionalProperties"}
            elif name in properties:
                properties[name].pop("default", None)
                if "count" in how:
                    properties[name] = {"type": "integer"}
                elif "blank" in how:
                    properties[name] = {"anyOf": [properties[name], {"type": "null"}]}
                if "optional" in how:
                    properties[name] = _without_null(properties[name])
                else:
                    required.append(name)
        hints = {name: get_type_hints(property_.fget)["return"] for name, property_ in derived_of(of).items()}
        properties |= {name: self.generate_inner(TypeAdapter(hint).core_schema) for name, hint in hints.items()}
        return {**made, "properties": properties, "required": [*required, *hints]}

    def _flat(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a value whose keys are part of the surrounding document."""
        while schema["type"] in ("default", "nullable"):
            schema = schema["schema"]
        if schema["type"] == "dict" and schema.get("keys_schema", {}).get("type") == "literal":
            names = schema["keys_schema"]["expected"]
            return {"properties": dict.fromkeys(names, self.generate_inner(schema["values_schema"])), "required": names}
        if schema["type"] == "dict":
            return {"additionalProperties": True}
        made: dict[str, Any] = self.generate_inner(schema)
        return self.get_schema_from_definitions(made["$ref"]) or {} if "$ref" in made else made


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    others = {word: value for word, value in schema.items() if word != "anyOf"}
    return {**kinds[0], **others} if len(kinds) == 1 else {**others, "anyOf": kinds} if kinds else schema


def data_types() -> Mapping[str, Any]:
    """Return the types of `data` by command, with the commands of other packages. A group, as `runs`, only answers a
    usage error, without data."""
    every = {**DATA, **{name: kind for entry in entry_points(group=GROUP) for name, kind in entry.load().items()}}
    return {**{name.partition(" ")[0]: Nothing for name in every}, **every}


def _named(name: str) -> Any:
    module, _, attribute = name.rpartition(":")
    named = getattr(import_module(f"dr_ctl.{module}"), attribute)
    return Annotated[dict[str, Any], WithJsonSchema({"const": {**named}})] if isinstance(named, Mapping) else named


def schema_of(command: str | None) -> dict[str, Any]:
    """Return the schema of a command's document, or of the settings (None); raises `UsageError`."""
    if command is None:
        return of_settings()
    every = data_types()
    if command not in every:
        text = f"{command} is no command with a document" if command else "no command was named"
        raise UsageError(text, remedy=f"The commands are {', '.join(sorted(every))}.")
    envelope: Any = Envelope
    names: Any = every[command]  # another package adds a type itself
    data = reduce(or_, map(_named, names.split())) if isinstance(names, str) else names
    document = envelope[Literal[command], Debt, data | Nothing]
    title = f"the document of dr-ctl {command}"
    if lines := LINES.get(command):
        # Each line of a run is the run's document.
        types = [envelope[str, Debt, _named(kind)] if kind == _RUN else _named(kind) for kind in lines.split()]
        document, title = reduce(or_, types, document), f"{title}, or a line before it"
    made = TypeAdapter[Any](document).json_schema(schema_generator=_OfDocuments, mode="serialization")
    return {"$schema": DRAFT, **made, "title": title}


def shown(command: str | None) -> Result:
    made = schema_of(command)
    return Result(ExitCode.OK, str(made["title"]), data=SchemaData(made), closing=json.dumps(made, indent=1))


def write_schemas(folder: Path) -> Sequence[str]:
    folder.mkdir()
    files = {f"{command.replace(' ', '-')}.json": command for command in data_types()}
    for name, command in {"settings.json": None, **files}.items():
        (folder / name).write_text(json.dumps(schema_of(command), indent=1) + "\n", encoding="utf-8")
    return ["settings.json", *files]
