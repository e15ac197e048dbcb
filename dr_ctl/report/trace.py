"""A run that has ended as an OpenTelemetry trace, made of its journal: the run is the root span, each of its steps one.

A process of its own sends it, for which nobody waits: a collector that is slow or away changes no run, and where no
endpoint is set nothing is loaded or started. `python -m dr_ctl.report.trace RUN_FOLDER` sends one again, and says why
that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl import __version__
from dr_ctl.core import machine
from dr_ctl.core.document import items, mapping, text
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding
from dr_ctl.engine.journal import StepEvent
from dr_ctl.engine.record import Material, read_run
from dr_ctl.engine.runs import RunFiles
from dr_ctl.report.story import STARTS, Mark, story_of
from dr_ctl.rpo.history.row import micros

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_ENDPOINTS: Final = (ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_BAD: Final = (*STARTS, StepEvent.FAILED.value, StepEvent.UNKNOWN.value, StepEvent.UNDO_FAILED.value)


def send(files: RunFiles, endpoint: str | None) -> Finding | None:
    """Start to send a run that has ended, if an endpoint is set; return a finding if a package is missing."""
    named = {} if endpoint is None or any(map(os.environ.get, _ENDPOINTS)) else {ENDPOINT: endpoint}
    if not (named or any(map(os.environ.get, _ENDPOINTS))):
        return None
    if (lacking := machine.missing("opentelemetry")) is not None:
        return found("DR-PART-003", remedy=lacking.remedy)
    with suppress(OSError):
        # The shell ends at once, and the sender belongs to nobody who would have to wait for it.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-m", __name__, str(files.folder)],
            env={**os.environ, **named},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
    return None


def spans_of(run: Material) -> list[ReadableSpan]:
    """The spans of a run, the root first. Their ids derive from the run, so that a second transmission has the same."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only the sender has it
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags  # noqa: PLC0415

    story, data, installation = story_of(run), mapping(run.result), mapping(run.installation)
    resource = Resource({"service.name": "dr-ctl", "service.version": __version__})

    def span(
        name: str, ident: str, began: datetime, ended: datetime, error: str | None, facts: dict[str, Any]
    ) -> ReadableSpan:
        context = SpanContext(_id(run.name, 32), _id(f"{run.name} {ident}", 16), False, TraceFlags(TraceFlags.SAMPLED))
        return ReadableSpan(
            name,
            context=context,
            parent=root.context if ident else None,
            resource=resource,
            attributes={f"dr_ctl.{key}": value for key, value in facts.items() if value not in (None, "")},
            status=Status(StatusCode.OK) if error is None else Status(StatusCode.ERROR, error),
            start_time=micros(began) * 1000,
            end_time=micros(ended) * 1000,
        )

    code = data.get("exit_code")
    good = code in (ExitCode.OK, ExitCode.WARNINGS)
    facts = {
        "run": run.name,
        "installation": text(installation.get("name")),
        "topology": text(installation.get("topology")),
        "source": text(run.plan.get("source")),
        "target": text(run.spec.get("target")),
        "outcome": text(data.get("outcome")),
        "exit_code": code,
        "findings": [text(mapping(finding).get("id")) for finding in items(data.get("findings"))],
        "outage_s": run.data.get("outage_s"),
    }
    summary = None if good else text(data.get("summary"))
    root = span(text(run.spec.get("operation")), "", story.parts[0].began, story.parts[-1].ended, summary, facts)
    spans = [root]
    for number, step in enumerate(story.steps):
        if step.mark is Mark.SIGNAL:
            continue
        # A step that a killed process left has no end: another process read its effect.
        error = step.text or step.event if step.event in _BAD else None
        facts = {"run": run.name, "step": step.id, "outcome": step.event, "text": step.text}
        name = f"undo {step.verb}" if step.undo else step.verb
        spans.append(span(name, f"{step.id} {number}", step.began, step.ended or step.began, error, facts))
    return spans


def _id(name: str, digits: int) -> int:
    return int(sha256(name.encode()).hexdigest()[:digits], 16)


def main() -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415

    folder = Path(sys.argv[1])
    sent = OTLPSpanExporter().export(spans_of(read_run(RunFiles(folder.name, folder))))
    sys.exit(sent is not SpanExportResult.SUCCESS)


if __name__ == "__main__":
    main()
