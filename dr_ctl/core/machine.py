"""Facts of this machine: its identity, its start, its processes and memory, and software that may be missing (Java,
Python packages), with the command that installs it."""

import ctypes
import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import ExitCode

MACHINE: Final = Path("/etc/machine-id")
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
# Options of mallopt(3). By default the C library keeps freed memory for speed, which a monitor does not need.
_ARENAS: Final = (-8, 1)
_MAPPED_FROM: Final = (-3, 128 * 1024)
_TRIMMED_FROM: Final = (-1, 128 * 1024)
NAME: Final = "dr-ctl"
_PACKAGES: Final = {  # the package to install, by module
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
    "py4j": "pyspark",
    "pandas": "pyspark[connect]",
    "psycopg": "psycopg[binary]",
    "pymysql": "PyMySQL",
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "proton": "python-qpid-proton",
    "paho": "paho-mqtt",
}
_TOGETHER: Final = ("numpy", "pyarrow")
_JAVA: Final = "`apt-get install openjdk-17-jre-headless` (Debian) or `dnf install java-17-openjdk-headless` (Red Hat)"


def shipped(name: str) -> Path:
    """Return a folder that is part of dr-ctl: in the wheel, or beside the sources."""
    package = Path(__file__).parents[1]
    packaged = package / f"_{name}"
    return packaged if packaged.exists() else package.parent / name


def machine_id() -> str:
    """Return a digest of the machine's id, which is confidential itself; empty for a machine without one."""
    identity = _read(MACHINE)
    return hashlib.sha256(f"dr-ctl {identity}".encode()).hexdigest()[:12] if identity else ""


def boot_id() -> str:
    """Return the id of the machine's present boot; empty for a machine without one."""
    return _read(BOOT)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def process_lives(pid: int) -> bool:
    """Say whether a process with this number runs on this machine, of any user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0


def give_back() -> None:
    """Let the C library and Arrow return freed memory; to be called before Arrow is loaded and threads start."""
    # Arrow's own allocator keeps what was freed.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option in (_ARENAS, _MAPPED_FROM, _TRIMMED_FROM):
            mallopt(*option)


class PartMissing(EnvironmentFault):
    exit_code = ExitCode.MISSING


def parts() -> Iterator[str]:
    """List Python, PySpark and Java with their versions. No JVM is started: a JDK has its version in a file."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - a seventh of the time of a `--help`

    yield f"Python {'.'.join(map(str, sys.version_info[:3]))}"
    try:
        yield f"PySpark {version('pyspark')}"
    except PackageNotFoundError:
        yield "no PySpark"
    java = shutil.which("java")
    home = Path(os.environ.get("JAVA_HOME") or (Path(java).resolve().parents[1] if java else "/nowhere"))
    match = re.search(r'^JAVA_VERSION="(.+)"', _read(home / "release"), re.MULTILINE)
    yield f"Java {match[1]}" if match else f"Java at {home}" if home.exists() else "no Java"


def no_java(what_for: str, instead: str = "") -> PartMissing:
    return PartMissing(
        f"there is no `java` on the PATH, and {what_for}", remedy=f"Install Java 17 or later: {_JAVA}.{instead}"
    )


def without(error: ModuleNotFoundError) -> PartMissing | None:
    """Return the error for a missing optional package; None for any other module, which is a defect."""
    package = _PACKAGES.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    # Code that needs one of these packages needs the other.
    others = [module for module in _TOGETHER if module != package and not _is_installed(module)]
    packages = [package, *(others if package in _TOGETHER else ())]
    are, it = ("s {} are", "them") if len(packages) > 1 else (" {} is", "it")
    text = f"the Python package{are.format(' and '.join(packages))} not installed"
    return PartMissing(text, remedy=f"{_installing(packages)} installs {it}.")


def missing(module: str) -> PartMissing | None:
    """Return the error of `without` if a package is not installed, without importing it."""
    return None if _is_installed(module) else without(ModuleNotFoundError(name=module))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _installing(packages: Sequence[str]) -> str:
    """Return the command that installs packages in the environment of dr-ctl."""
    wanted = shlex.join(map(_requirement, packages))
    place = Path(sys.prefix)
    if place.parent.name == "venvs" and place.parent.parent.name == "pipx":
        return f"`pipx inject {place.name} {wanted}`"
    return f"`{shlex.quote(sys.executable)} -m pip install {wanted}`"


def _requirement(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 - a seventh of the time of a `--help`

    try:
        wanted = requires(NAME) or []
    except PackageNotFoundError:
        return package
    pattern = re.compile(rf"{re.escape(package)}[<>=~!][^;]*", re.IGNORECASE)
    return next((match[0].strip() for requirement in wanted if (match := pattern.match(requirement))), package)
