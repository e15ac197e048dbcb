"""A run that has ended is sent as a trace to a collector, a real server that takes OTLP over HTTP; nobody waits for one
that is slow or away."""

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.sites import Sites

pytestmark = pytest.mark.wire
MOVE = ("swapover", "--to", "paris", "--yes", "--json")


class Collector:
    def __init__(self) -> None:
        self.bodies = Queue[tuple[str, bytes]]()
        self.answers = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                whole = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                collector.bodies.put((self.path, whole))
                collector.answers.wait(30)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.answers.set()
    collector.server.shutdown()
    collector.server.server_close()


def spans(body: bytes) -> list[Any]:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = service.ExportTraceServiceRequest.FromString(body)
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def told(span: Any) -> dict[str, Any]:
    return {
        attribute.key.removeprefix("dr_ctl."): attribute.value.string_value or attribute.value.int_value
        for attribute in span.attributes
    }


def test_a_run_is_a_trace_and_each_of_its_steps_a_span(
    dr_ctl: Shell, sites: Sites, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)

    ended = dr_ctl(*MOVE)
    path, body = collector.bodies.get(timeout=60)

    root, *steps = spans(body)
    run, journal = ended.document["run"], dr_ctl.journal(ended.document["run"])
    verbs = [line["step"] for line in journal if line["kind"] == "step" and line["outcome"] == "started"]
    assert (ended.code, path, root.name) == (0, "/v1/traces", "swapover")
    assert (told(root)["run"], told(root)["outcome"], told(root)["target"]) == (run, "ok", "paris")
    assert [told(step)["step"] for step in steps] == verbs
    assert {(step.trace_id, step.parent_span_id) for step in steps} == {(root.trace_id, root.span_id)}
    assert all(root.start_time_unix_nano <= step.start_time_unix_nano <= step.end_time_unix_nano for step in steps)
    assert steps[-1].end_time_unix_nano <= root.end_time_unix_nano


@pytest.mark.parametrize("where", ["slow", "away"])
def test_a_collector_that_is_slow_or_away_changes_nothing(
    dr_ctl: Shell, sites: Sites, collector: Collector, where: str
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    dr_ctl.add(traces=collector.url if where == "slow" else "http://127.0.0.1:9")
    began = time.monotonic()

    ended = dr_ctl(*MOVE)

    assert (ended.code, [item for item in ended.ids if item == "DR-PART-003"]) == (0, [])
    assert time.monotonic() - began < 25
    if where == "slow":
        assert collector.bodies.get(timeout=60)[0] == "/v1/traces"
    assert sites.paris.settable["listeners"]["clients"]


def test_nothing_is_loaded_or_started_where_no_endpoint_is_set_and_a_missing_package_is_said(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dr_ctl.report import trace  # noqa: PLC0415

    started: list[object] = []
    monkeypatch.setattr(trace.subprocess, "run", lambda *words, **_: started.append(words))
    assert dr_ctl(*MOVE).code == 0
    monkeypatch.setattr(trace.machine, "_is_installed", lambda module: module != "opentelemetry")
    dr_ctl.add(traces="http://127.0.0.1:9")

    back = dr_ctl("swapover", "--to", "london", "--yes", "--json")

    assert (back.code, started) == (0, [])
    assert "opentelemetry-exporter-otlp-proto-http" in back.document["findings"][-1]["remedy"]
    assert sites.london.settable["listeners"]["clients"]
