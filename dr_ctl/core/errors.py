"""Errors that dr-ctl raises on purpose, in one tree, by the caller's next action.

    DrCtlError
    ├── UsageError          fix the arguments or the settings file        (2)
    ├── EnvironmentFault    this machine lacks something or a file fails   (1)
    ├── BrokerError         a broker did not answer as asked: a finding    (does not end a command)
    │   ├── Unreachable         nobody listens, or no route
    │   ├── TimedOut            no answer in time: a change may have had its effect
    │   ├── LoginRefused        the login was refused: no further call to that broker
    │   ├── Throttled           its console limits the rate of logins
    │   ├── Sick                the process lives, its management does not
    │   ├── StartingOrEnding    it is starting or ending: a later reading says more
    │   ├── Passive             another node of that broker is active, or none is
    │   ├── TooOld              its version lacks data that dr-ctl needs
    │   └── …                   errors of one management protocol, in its package
    └── Stopped             a signal ended a wait                          (130, 143)

A broker's failure becomes a view or an outcome where it occurs, not an exception that ends the command.
"""

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from dr_ctl.core.model import ExitCode

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
# Errors of this machine or its disks, which are no defect of dr-ctl.
OF_MACHINE: Final = frozenset(
    (*NO_ROOM, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE)
)
# Errors from reading a document of unknown origin.
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)


class DrCtlError(Exception):
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    finding: ClassVar[str | None] = None  # the id of its finding; None: the id of the exit code's finding
    remedy = "Run again with --verbose for the cause."
    run: str | None = None  # the run that the error has ended

    def __init__(self, text: str, *, remedy: str | None = None) -> None:
        super().__init__(text)
        if remedy is not None:
            self.remedy = remedy


class UsageError(DrCtlError):
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
    remedy = "See `dr-ctl COMMAND --help`."


@contextmanager
def writing(path: object, remedy: str = "Name a file that can be written.") -> Iterator[None]:
    """Raise `UsageError` for a file that cannot be written in this block."""
    try:
        yield
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror or problem}", remedy=remedy) from problem


class EnvironmentFault(DrCtlError):
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    remedy = "Fix what the message names and run the same command again."


class BrokerError(DrCtlError):
    """A broker did not answer as asked; a change may have taken effect. `is_local` says that the settings or this
    machine are the reason, `shows_life` that the management answered, so that something runs there."""

    is_local: ClassVar[bool] = False
    shows_life: bool = False
    remedy = "Look at that broker's log and its management console."


class Unreachable(BrokerError):
    """Nobody listens at the address, or there is no route. `refused` is true if the port refused the connection."""

    remedy = "Start the broker if it does not run; its console has to be bound to an address that this machine reaches."

    def __init__(self, text: str, *, refused: bool, remedy: str | None = None) -> None:
        super().__init__(text, remedy=remedy)
        self.refused = refused


class TimedOut(BrokerError):
    remedy = "The broker may be frozen or overloaded; it may still serve its clients."


class LoginRefused(BrokerError):
    is_local = True
    shows_life = True
    remedy = "Check username and password of this broker in the settings file; repeated attempts lock the account out."


class Throttled(BrokerError):
    is_local = True
    shows_life = True
    remedy = "The console throttles logins of this user after failures; wait as long as it says, then try again."


class Sick(BrokerError):
    remedy = "The process lives but its management fails (out of memory?): it may still serve; it is not down."


class StartingOrEnding(BrokerError):
    remedy = "Look again in a moment."


class Passive(BrokerError):
    """A passive node answered, which has no listeners, no queues and no figures of the broker. `at` lists the addresses
    of the nodes for each other, if the node shows them."""

    is_local = True
    shows_life = True
    remedy = "Name every node of that broker under `nodes:`; `dr-ctl validate` then shows which is active."

    def __init__(self, text: str, *, at: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.at = at


class TooOld(BrokerError):
    is_local = True
    shows_life = True
    remedy = "Bring its brokers to that version; until then move by hand, with their clients stopped at both sites."


class Stopped(DrCtlError):
    exit_code: ClassVar[ExitCode] = ExitCode.INTERRUPTED
    remedy = "`dr-ctl status` shows the state of both sites."

    def __init__(self, signum: int, where: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}{where}")
        self.signum = signum
