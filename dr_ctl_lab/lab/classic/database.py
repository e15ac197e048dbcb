"""The PostgreSQL of a lab, with the brokers' messages and the lease of their lock."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.machine import PartMissing
from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab import daemons
from dr_ctl_lab.lab.cache import cache_dir, locked
from dr_ctl_lab.lab.distribution import FETCH_TIMEOUT_S, maven
from dr_ctl_lab.lab.started import POLL_S, log_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

DRIVER: Final = "org.postgresql:postgresql:42.7.4"
USER, NAME = "activemq", "postgres"
PACKAGED: Final = Path("/usr/lib/postgresql")  # Debian's packages; not on the PATH
MAKE_S, UP_S = 60.0, 30.0
# PostgreSQL does not run as root, and other users cannot read a lab's directories.
OTHER_USERS: Final = ("postgres", "nobody")
CAPABILITY: Final = "+dac_override"


@dataclass(frozen=True, slots=True)
class Database:
    """Its port on loopback, and the password of its only user."""

    port: int
    password: str

    @property
    def jdbc(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{NAME}"

    @property
    def dsn(self) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{NAME}"

    def up(self, directory: Path) -> daemons.Process:
        """Create it in a new directory and start it; return when it answers. EnvironmentFault where it does not."""
        directory.mkdir(mode=0o700)
        log, secret, data = directory / "log", directory / "password", directory / "data"
        write_text(secret, self.password)
        data.mkdir(mode=0o700)
        _give_away(secret, data)
        arguments = ["-D", str(data), "-U", USER, "--pwfile", str(secret), "-A", "scram-sha-256", "-E", "UTF8", "-N"]
        _run([*_as_other_user(), _program("initdb"), *arguments], cwd=data)
        items = ["-D", str(data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""]
        process = daemons.launch([*_as_other_user(), _program("postgres"), *items], cwd=data, log=log)
        try:
            self._wait(process, log)
        except BaseException:
            daemons.kill(process)
            raise
        return process

    def _wait(self, process: daemons.Process, log: Path) -> None:
        ready = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        until = time.monotonic() + UP_S
        while subprocess.run(ready, check=False, timeout=UP_S).returncode != 0:
            if not process.alive() or time.monotonic() > until:
                raise EnvironmentFault(f"the lab's PostgreSQL does not answer\n{log_tail([log])}")
            time.sleep(POLL_S)


def driver() -> Path:
    """Return the jar of the JDBC driver; Maven fetches it once."""
    _, name, version = DRIVER.split(":")
    jar = cache_dir() / f"{name}-{version}.jar"
    with locked(jar.stem, within_s=FETCH_TIMEOUT_S):
        if not jar.exists():
            scratch = cache_dir() / f".{jar.stem}"
            scratch.mkdir(exist_ok=True)
            maven(DRIVER, ["dependency:copy", f"-Dartifact={DRIVER}", f"-DoutputDirectory={scratch}"], scratch)
            (scratch / jar.name).rename(jar)  # atomic
            shutil.rmtree(scratch)
    return jar


def _program(name: str) -> str:
    path = shutil.which(name) or next((str(path) for path in sorted(PACKAGED.glob(f"*/bin/{name}"))), None)
    if path is None:
        raise PartMissing(f"{name} is not on the PATH", remedy="Install PostgreSQL, or use a lab without it.")
    return path


def _as_other_user() -> list[str]:
    """The prefix of a command that runs it as another user than root."""
    if os.geteuid() != 0:
        return []
    user = _other_user()
    caps = [f"--inh-caps={CAPABILITY}", f"--ambient-caps={CAPABILITY}"]
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *caps]


def _other_user() -> pwd.struct_passwd:
    return next(user for name in OTHER_USERS for user in pwd.getpwall() if user.pw_name == name)


def _give_away(*paths: Path) -> None:
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, _other_user().pw_uid, _other_user().pw_gid)


def _run(argv: Sequence[str], *, cwd: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=MAKE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        raise EnvironmentFault(f"the lab's PostgreSQL cannot be made: {(done.stdout + done.stderr).strip()[-600:]}")
