"""The brokers' distribution: fetched once with Maven by its coordinates, unpacked, kept in the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.machine import PartMissing, no_java
from dr_ctl_lab.lab.cache import cache_dir, locked

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCH_TIMEOUT_S = 600
REACHABLE = "See that `mvn` can reach a repository, then try again."
LEAST_JAVA = 17
ON_TWIN = " Or add `--on twin`: simulated brokers need neither Java nor Maven."


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A published archive, by what Maven calls it."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}:tar.gz:bin"

    @property
    def folder(self) -> str:
        return f"{self.artifact}-{self.version}"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version, to be compared. UsageError where it has no number."""
        if not (matches := re.findall(r"\d+", self.version)):
            raise UsageError(
                f"{self.version!r} is no version of the brokers", remedy="As in `--broker-version 2.40.0`."
            )
        return tuple(map(int, matches))

    def at(self, version: str) -> Coordinates:
        """The same in another version; the empty text is this one. Artemis has a group of its own since 2.50."""
        if not version:
            return self
        other = replace(self, version=version)
        if self.artifact != ARTEMIS.artifact:
            return other
        return replace(other, group="org.apache.artemis" if other.numbers >= OWN_GROUP else "org.apache.activemq")


OWN_GROUP = (2, 50)
# Not every registry has the archives of Classic 6, and they have a web console that nobody looks at here: its jars are
# enough. Its management is the same Jolokia as in its web server, without that.
CLASSIC, IN_JARS = "apache-activemq", (6,)
CLASSIC_PARTS = (
    "broker", "kahadb-store", "jdbc-store", "jaas", "stomp", "amqp", "mqtt", "openwire-legacy", "spring", "console",
)  # fmt: skip
BESIDE_CLASSIC = (
    ("org.springframework", "spring-context", "7.0.8", ""),
    ("org.apache.logging.log4j", "log4j-slf4j2-impl", "2.26.1", ""),
    ("org.apache.commons", "commons-dbcp2", "2.14.0", ""),
    ("com.thoughtworks.xstream", "xstream", "1.4.21", ""),  # both for advisories over STOMP
    ("org.codehaus.jettison", "jettison", "1.5.7", ""),
    ("org.jolokia", "jolokia-agent-jvm", "2.6.0", ""),
)


def jars_of_classic(what: Coordinates) -> Sequence[tuple[str, str, str, str]]:
    own = [(what.group, f"activemq-{part}", what.version, "") for part in CLASSIC_PARTS]
    return [*own, *BESIDE_CLASSIC]


ARTEMIS = Coordinates("org.apache.artemis", "apache-artemis", "2.56.0")


def obtain(what: Coordinates = ARTEMIS) -> Path:
    """Return the unpacked distribution. The user's Maven settings decide where it comes from.

    EnvironmentFault where Java or Maven is missing, or Maven cannot fetch it. Two labs that start at once fetch once.
    """
    need_java()
    home = cache_dir() / what.folder
    if what.artifact == CLASSIC and what.numbers >= IN_JARS:
        return gather(home, jars_of_classic(what))
    if home.is_dir():
        return home
    with locked(what.folder, within_s=FETCH_TIMEOUT_S):
        if not home.is_dir():  # another lab may have been quicker
            _fetch(what, home)
    return home


def gather(home: Path, jars: Sequence[tuple[str, str, str, str]]) -> Path:
    """Return a folder with these jars in its `lib`, and with those that they need: fetched once. Of each its group,
    artifact, version and classifier. EnvironmentFault as `obtain`."""
    need_java()
    with locked(home.name, within_s=FETCH_TIMEOUT_S):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as scratch:
                project = Path(scratch)
                (project / "pom.xml").write_text(_pom(jars))
                maven(home.name, ["dependency:copy-dependencies", "-DoutputDirectory=home/lib"], project)
                (project / "home").rename(home)  # appears whole or not at all
    return home


def _pom(jars: Sequence[tuple[str, str, str, str]]) -> str:
    """A project that needs all of them, so that Maven finds what those need in turn."""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{f'<classifier>{classifier}</classifier>' if classifier else ''}</dependency>"
        for group, artifact, version, classifier in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>dr-ctl</groupId><artifactId>lab</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{needed}</dependencies></project>"
    )


def need_java() -> None:
    """PartMissing where no Java that the brokers can use is on the PATH."""
    java = shutil.which("java")
    if java is None:
        raise no_java("the brokers of a lab run on it", ON_TWIN)
    result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = result.partition('"')[2].partition(".")[0]
    if version.isdigit() and int(version) < LEAST_JAVA:
        raise PartMissing(
            f"Java {version} is too old for the brokers", remedy=f"Put a Java {LEAST_JAVA} or later first on the PATH."
        )


def _fetch(what: Coordinates, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{what.folder}-", dir=home.parent) as scratch:
        maven(str(what), ["dependency:copy", f"-Dartifact={what}", f"-DoutputDirectory={scratch}"], Path(scratch))
        archives = list(Path(scratch).glob("*.tar.gz"))
        if not archives:
            raise EnvironmentFault(f"Maven could not fetch {what}: it left no archive", remedy=REACHABLE)
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / what.folder
        if not (unpacked / "bin").is_dir():
            raise EnvironmentFault(f"{what} does not hold {what.folder}/bin")
        unpacked.rename(home)  # appears whole or not at all


def maven(what: str, words: Sequence[str], scratch: Path) -> None:
    """Let Maven fetch something, working in `scratch`. EnvironmentFault where it is missing or cannot."""
    program = shutil.which("mvn")
    if program is None:
        text = f"there is no `mvn` on the PATH, and it fetches {what}, which is not in the cache"
        install = "`apt-get install maven` (Debian) or `dnf install maven` (Red Hat)"
        raise PartMissing(text, remedy=f"Install Maven: {install}.{ON_TWIN}")
    argv = [program, "--batch-mode", "--quiet", *words]
    try:
        done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(f"Maven did not fetch {what} within {FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-600:]
        raise EnvironmentFault(f"Maven could not fetch {what}: {said}", remedy=REACHABLE)
