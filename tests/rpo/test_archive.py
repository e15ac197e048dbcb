"""The archive of Spark's classes: where it is, that it appears whole or not at all, and that a session takes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dr_ctl.rpo.spark import archive


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def java(folder: Path, version: str = "17") -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("")
    (folder / "release").write_text(f'JAVA_VERSION="{version}"')


def test_each_jvm_each_pyspark_and_each_way_to_work_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    java(tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    first, again = (archive.place("4.0", Path("jars")) for _ in range(2))
    other_spark, other_place = archive.place("4.1", Path("jars")), archive.place("4.0", Path("elsewhere"))
    other_work = archive.place("4.0", Path("jars"), compiles=False)
    java(tmp_path / "jdk", "21")

    other_java = archive.place("4.0", Path("jars"))

    assert first == again
    assert first is not None
    assert first.parent == cache / "spark-classes"
    assert len({first, other_spark, other_place, other_work, other_java}) == 5


def test_without_java_or_cache_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    without_java = archive.place("4.0", Path("jars"))
    java(tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "file"))

    assert (without_java, archive.place("4.0", Path("jars"))) == (None, None)


def test_it_gets_its_name_when_it_is_whole_and_few_older_ones_stay(tmp_path: Path) -> None:
    kept = tmp_path / "new.jsa"
    for number in range(6):
        old = tmp_path / f"{number}.jsa"
        old.write_text("")
        os.utime(old, (number, number))
    made = archive.fresh(kept)
    made.write_text("half")
    archive.settle(made, kept, is_whole=False)
    assert not made.exists()
    assert not kept.exists()

    made.write_text("whole")
    archive.settle(made, kept, is_whole=True)

    assert kept.read_text() == "whole"
    assert sorted(path.name for path in tmp_path.glob("*.jsa")) == ["3.jsa", "4.jsa", "5.jsa", "new.jsa"]


def test_a_session_maps_it_makes_it_or_does_without(tmp_path: Path) -> None:
    from dr_ctl.rpo.spark.session import _sharing  # noqa: PLC0415

    kept, made = tmp_path / "kept.jsa", tmp_path / "made.jsa"

    none, making = _sharing(kept, None), _sharing(kept, made)
    kept.write_text("")
    mapping = _sharing(kept, None)

    assert none == []
    assert making[0] == f'"-XX:ArchiveClassesAtExit={made}"'
    assert mapping[0] == f'"-XX:SharedArchiveFile={kept}"'
    assert "-Xshare:auto" in mapping


@pytest.mark.spark
@pytest.mark.chaos
# pyspark forgets its pipe to a JVM that did not start.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_archive_is_made_once_and_a_broken_one_is_no_obstacle(tmp_path: Path, cache: Path) -> None:
    from dr_ctl.rpo.spark.session import session  # noqa: PLC0415

    def asked(*, may_take_time: bool) -> int:
        with session(master="local[1]", may_take_time=may_take_time) as spark:
            return spark.range(3).count()

    assert asked(may_take_time=False) == 3
    assert list(cache.rglob("*.jsa")) == []
    assert asked(may_take_time=True) == 3
    [kept] = cache.rglob("*.jsa")
    made_at = kept.stat().st_mtime_ns
    assert asked(may_take_time=True) == 3
    assert kept.stat().st_mtime_ns == made_at
    kept.chmod(0o600)
    kept.write_bytes(kept.read_bytes()[:1000])
    assert asked(may_take_time=True) == 3
