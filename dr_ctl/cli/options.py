"""The options of commands that may change a broker, by what they are for: a class of them is declared as it stands,
each field an option, and `asking.py` turns it into a question. They have no more than an `__init__`, because each start
of dr-ctl pays for what is generated here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from dr_ctl.cli.completing import OPERATIONS, SITES

Output = Literal["text", "json"]
CONFIG = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The settings file.")]
STATE = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="Where runs are kept.")]
VERBOSE = Annotated[bool, typer.Option("--verbose", help="Say the cause of an error.")]
NO_COLOR = Annotated[bool, typer.Option("--no-color", help="Plain text, as with NO_COLOR.")]
OUTPUT = Annotated[Output | None, typer.Option("--output", metavar="text|json", help="Text, or one JSON document.")]
JSON = Annotated[bool, typer.Option("--json", help="Short for --output json.")]
QUIET = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
WARN_EXIT = Annotated[bool, typer.Option("--warn-exit", help="End with 30 instead of 0 where there are warnings.")]
TO = Annotated[str, typer.Option("--to", metavar="SITE", **SITES, help="The site that shall serve.")]
SITE = Annotated[str, typer.Argument(metavar="SITE", **SITES)]
TIMEOUT = Annotated[str | None, typer.Option("--timeout", metavar="T", help="Of the drain, as in 30s or 5m.")]
OUTAGE = Annotated[
    str | None,
    typer.Option("--max-outage", metavar="T", help="Undo when clients would be out longer; default: objectives."),
]
CUT = Annotated[bool, typer.Option("--cut-in-flight", help="Move although clients hold messages: they come again.")]
ACCEPT = Annotated[
    list[str] | None, typer.Option("--accept-difference", metavar="QUEUE=N", help="Move with exactly this difference.")
]
LOSS = Annotated[
    str | None, typer.Option("--accept-loss", metavar="N|unknown", help="Messages that a failover may lose.")
]
DUPLICATES = Annotated[
    str | None,
    typer.Option("--accept-duplicates", metavar="N|unknown", help="Duplicates that this may bring."),
]
PRESUME = Annotated[
    str | None,
    typer.Option("--presume-down", metavar="SITE", **SITES, help="Take this site for down; needs --reason."),
]
SILENT = Annotated[
    str | None,
    typer.Option(
        "--silent-since",
        metavar="T",
        help="When the lost site's service ended (10m ago, 03:02 or a date, UTC): bounds the loss; needs --reason.",
    ),
]
QUEUES = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="PATTERN",
        help="Only these queues: a name, or a pattern as in Artemis (`orders.#`); where the topology moves queues one "
        "by one.",
    ),
]
AS_IF_LOST = Annotated[
    str | None,
    typer.Option(
        "--as-if-lost",
        metavar="SITE",
        **SITES,
        help="The plan of a failover, and its price today, as if SITE was lost: to be read, never carried out.",
    ),
]
REASON = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; the journal keeps it.")]
EXPECT = Annotated[
    str | None,
    typer.Option("--expect-serving", metavar="SITE", **SITES, help="Refuse unless SITE serves."),
]


@dataclass(eq=False, repr=False)
class DrainOptions:
    to: TO
    timeout: TIMEOUT = None
    accept_difference: ACCEPT = None
    accept_duplicates: DUPLICATES = None
    queues: QUEUES = None


@dataclass(eq=False, repr=False)
class MoveOptions:
    to: TO
    timeout: TIMEOUT = None
    max_outage: OUTAGE = None
    cut_in_flight: CUT = False
    accept_difference: ACCEPT = None
    accept_duplicates: DUPLICATES = None
    queues: QUEUES = None


@dataclass(eq=False, repr=False)
class FailoverOptions:
    to: TO
    timeout: TIMEOUT = None
    accept_loss: LOSS = None
    accept_duplicates: DUPLICATES = None
    presume_down: PRESUME = None
    silent_since: SILENT = None


@dataclass(eq=False, repr=False)
class SiteOptions:
    site: SITE
    timeout: TIMEOUT = None


@dataclass(eq=False, repr=False)
class LostSiteOptions:
    site: Annotated[str, typer.Argument(metavar="SITE", **SITES, help="The lost site that is back.")]
    timeout: TIMEOUT = None
    accept_duplicates: DUPLICATES = None


@dataclass(eq=False, repr=False)
class StepOptions:
    site: SITE
    timeout: TIMEOUT = None
    queues: QUEUES = None


@dataclass(eq=False, repr=False)
class PlanOptions:
    operation: Annotated[
        str,
        typer.Argument(metavar="OPERATION", **OPERATIONS, help="swapover, failover, failback, reinstate"),
    ]
    site: Annotated[str | None, typer.Argument(metavar="[SITE]", **SITES, help="The site to serve, or to take in.")] = (
        None
    )
    to: Annotated[str | None, typer.Option("--to", metavar="SITE", **SITES, help="The same.")] = None
    timeout: TIMEOUT = None
    max_outage: OUTAGE = None
    cut_in_flight: CUT = False
    accept_difference: ACCEPT = None
    queues: QUEUES = None
    expect_serving: EXPECT = None
    accept_loss: LOSS = None
    accept_duplicates: DUPLICATES = None
    presume_down: PRESUME = None
    silent_since: SILENT = None
    reason: REASON = None


AskOptions = DrainOptions | MoveOptions | FailoverOptions | SiteOptions | LostSiteOptions | StepOptions | PlanOptions


@dataclass(eq=False, repr=False)
class ChangeOptions:
    """How any command that may change a broker is run."""

    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the very plan that a run would execute; change nothing.")
    ] = False
    break_lock: Annotated[
        bool, typer.Option("--break-lock", help="Take over the live lock of another run; needs --reason.")
    ] = False
    reason: REASON = None
    expect_serving: EXPECT = None


@dataclass(eq=False, repr=False)
class StepwiseOptions(ChangeOptions):
    step: Annotated[bool, typer.Option("--step", help="Ask before each step; a no offers undo, or stopping here.")] = (
        False
    )


@dataclass(eq=False, repr=False)
class WholeOptions(StepwiseOptions):
    saved: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Carry out this saved plan, or refuse: what changed?")
    ] = None


@dataclass(eq=False, repr=False)
class Everywhere:
    """What every command takes. The first four work before the command as well, and help shows them there."""

    config: Annotated[Path | None, typer.Option("--config", hidden=True)] = None
    state_dir: Annotated[Path | None, typer.Option("--state-dir", hidden=True)] = None
    verbose: Annotated[bool, typer.Option("--verbose", hidden=True)] = False
    no_color: Annotated[bool, typer.Option("--no-color", hidden=True)] = False
    output: OUTPUT = None
    json: JSON = False
    quiet: QUIET = False
    warn_exit: WARN_EXIT = False
