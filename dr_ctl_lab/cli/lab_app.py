"""`dr-ctl lab` and `dr-ctl demo`, declared; longer code is in `labs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dr_ctl.application.result import Result
from dr_ctl.cli.command import TEXTS, command, group
from dr_ctl.cli.session import Session
from dr_ctl.core.model import ExitCode
from dr_ctl_lab.lab.kinds import KINDS, MIRROR

if TYPE_CHECKING:
    from dr_ctl_lab.lab.lab import Lab
    from dr_ctl_lab.playground import Playground

lab_app = group("lab", TEXTS["lab"])
demo_app = group(None, TEXTS["demo"])

LAB = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The lab's directory.")]
LAB_DEFAULT = Path("lab")
SITE = Annotated[str, typer.Argument(metavar="SITE")]
NODE = Annotated[str | None, typer.Option("--node", metavar="NAME", help="Only this node of its brokers: a or b.")]


def _lab(directory: Path) -> Lab | Playground:
    from dr_ctl_lab.cli import labs  # noqa: PLC0415 - imports take time

    return labs.opened(directory)


@command(lab_app, "up", example="lab up --topology artemis-mirror --dir lab")
def lab_up(
    session: Session,
    *,
    directory: LAB = LAB_DEFAULT,
    queue: Annotated[list[str] | None, typer.Option("--queue", metavar="NAME", help="Queues to create.")] = None,
    delay: Annotated[int, typer.Option("--delay", metavar="MS", help="One-way delay of the links.")] = 0,
    sites: Annotated[
        str, typer.Option("--sites", metavar="A,B", help="Names of the sites; the first serves.")
    ] = "london,paris",
    topology: Annotated[
        str, typer.Option("--topology", metavar="ID", help=f"What joins the sites: {', '.join(KINDS)}.")
    ] = MIRROR,
    on: Annotated[
        Literal["brokers", "twin"],
        typer.Option("--on", help="Real brokers, or a twin: simulated ones, without Java, in one process."),
    ] = "brokers",
    plugin: Annotated[
        Path | None,
        typer.Option("--plugin", metavar="JAR", help="The continuity plugin; default: DR_CTL_CONTINUITY_JAR."),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", metavar="N", help="How many brokers each site has.")] = 1,
    nodes: Annotated[
        int,
        typer.Option("--nodes", metavar="N", help="Nodes of each broker: 2 are a primary and a backup on one store."),
    ] = 1,
    replication: Annotated[bool, typer.Option("--replication", help="Nodes replicate instead.")] = False,
    version: Annotated[
        str, typer.Option("--broker-version", metavar="VERSION", help="Of the brokers; tried ones: docs/versions.md.")
    ] = "",
) -> Result:
    """Start pairs of brokers on loopback, joined by the topology, and write their settings file."""
    from dr_ctl_lab.cli import labs  # noqa: PLC0415

    queues, names = tuple(queue or labs.QUEUES), labs.site_names(sites)
    options = labs.LabOptions(directory, queues, delay, names, topology, pairs, nodes, replication, version)
    return labs.twin_up(session, options, plugin) if on == "twin" else labs.up(session, options, plugin)


@command(lab_app, "down", example="lab down --dir lab")
def lab_down(session: Session, *, directory: LAB = LAB_DEFAULT) -> Result:
    """End everything of the lab and remove its directory."""
    del session
    _lab(directory).down()
    return Result(ExitCode.OK, f"{directory} is gone, with all that ran in it")


@command(lab_app, "status", example="lab status --dir lab")
def lab_status(session: Session, *, directory: LAB = LAB_DEFAULT) -> Result:
    """Say what of the lab runs, and how its links stand."""
    from dr_ctl_lab.cli import labs  # noqa: PLC0415

    return labs.status(session, directory)


@command(lab_app, "kill", example="lab kill london --dir lab")
def lab_kill(session: Session, *, site: SITE, node: NODE = None, directory: LAB = LAB_DEFAULT) -> Result:
    """Kill a site's broker at once (SIGKILL), or one of its nodes."""
    del session
    _lab(directory).kill(site, node=node)
    return Result(ExitCode.OK, f"node {node} of {site} was killed" if node else f"{site} was killed")


@command(lab_app, "start", example="lab start london --dir lab")
def lab_start(session: Session, *, site: SITE, node: NODE = None, directory: LAB = LAB_DEFAULT) -> Result:
    """Start a site's broker again, or one of its nodes; only listeners of brokers with nodes open by themselves."""
    del session
    _lab(directory).start(site, node=node)
    return Result(ExitCode.OK, f"node {node} of {site} runs" if node else f"{site} runs")


@command(lab_app, "cut", example="lab cut --from london --mode hang")
def lab_cut(
    session: Session,
    *,
    source: Annotated[str | None, typer.Option("--from", metavar="SITE", help="Only this site's link.")] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="refuse|hang", help="Refuse connections, or let them hang.")
    ] = "refuse",
    directory: LAB = LAB_DEFAULT,
) -> Result:
    """Cut the links between the sites."""
    del session
    _lab(directory).cut(source, mode)
    return Result(ExitCode.OK, f"the link of {source} is cut" if source else "both links are cut")


@command(lab_app, "heal", example="lab heal --dir lab")
def lab_heal(session: Session, *, directory: LAB = LAB_DEFAULT) -> Result:
    """Heal the links."""
    del session
    _lab(directory).heal()
    return Result(ExitCode.OK, "the links are healed")


@command(lab_app, "load", example="lab load --rate 200 --for 1m")
def lab_load(
    session: Session,
    *,
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Messages a second, in total.")] = 300.0,
    duration: Annotated[str, typer.Option("--for", metavar="T", help="How long to send.")] = "30s",
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", metavar="NAME", help="stomp, amqp, core, openwire, mqtt; all that are spoken."),
    ] = None,
    directory: LAB = LAB_DEFAULT,
) -> Result:
    """Send and receive, keep a ledger of every message id, and judge: lost, twice, in doubt."""
    from dr_ctl_lab.cli import labs  # noqa: PLC0415

    return labs.load(session, directory, rate, duration, protocol or ())


@command(demo_app, "demo", example="demo --on twin")
def demo(
    session: Session,
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where it works and leaves its report.")
    ] = Path("dr-ctl-demo"),
    on: Annotated[
        Literal["brokers", "twin"],
        typer.Option("--on", help="Two real brokers, or a twin: simulated ones, without Java."),
    ] = "brokers",
    topology: Annotated[
        str, typer.Option("--topology", metavar="ID", help="What joins the sites, as in `lab up`.")
    ] = MIRROR,
) -> Result:
    """The main job on two brokers: a swapover, a failover and a failback under load; the ledger judges each."""
    from dr_ctl_lab import demonstration  # noqa: PLC0415

    out = None if session.quiet else sys.stderr if session.json else sys.stdout
    return demonstration.demo(out, directory, demonstration.On(on), topology)
