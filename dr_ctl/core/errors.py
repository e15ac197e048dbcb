"""Everything dr-ctl raises on purpose, in one tree, by what the caller does next.

    DrCtlError
    ├── UsageError          fix the arguments or the settings file        (2)
    ├── EnvironmentFault    this machine lacks something or a file fails   (1)
    ├── BrokerError         a broker did not answer as asked: a finding    (never the end by itself)
    │   └── …               one type for each way, in `dr_ctl.jolokia.errors`
    └── Stopped             a signal asked for the end of a wait           (130, 143)

A broker's failure is data for the planner and for outcomes; it leaves the layer that met it as a view or an
outcome, not as an exception that ends the command.
"""

from __future__ import annotations

import signal
from typing import ClassVar

from dr_ctl.core.model import ExitCode


class DrCtlError(Exception):
    """Base of everything raised on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    remedy = "Run again with --verbose for the cause."

    def __init__(self, text: str, *, remedy: str | None = None) -> None:
        super().__init__(text)
        if remedy is not None:
            self.remedy = remedy


class UsageError(DrCtlError):
    """Arguments or settings are wrong; nothing was asked of any broker."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
    remedy = "See `dr-ctl COMMAND --help`."


class EnvironmentFault(DrCtlError):
    """This machine lacks a program, a port or disk space that the command needs."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    remedy = "Mend what the message names and run the same command again."


class BrokerError(DrCtlError):
    """A broker did not answer as asked. Says nothing about whether a changing request took effect."""

    remedy = "Look at that broker's log and its management console."


class Stopped(DrCtlError):
    """A wait was ended by SIGINT or SIGTERM."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERRUPTED
    remedy = "`dr-ctl status` says where things stand."

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
