"""Passwords come from where the settings say; what goes wrong is told without them."""

import sys
from pathlib import Path

import pytest

from dr_ctl.processes import secrets
from dr_ctl.processes.secrets import SecretMissing, resolve
from dr_ctl.settings.parts import Secret

PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIVEN", "from-env")
    monkeypatch.delenv("ABSENT", raising=False)
    (tmp_path / "secret").write_text("from-file \n\n")
    (tmp_path / "latin").write_bytes(b"hunter2\xff")
    (tmp_path / "tell").write_text("#!/bin/sh\nprintf 'from-command\\n'\n")
    (tmp_path / "tell").chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (Secret(plain="from-here"), "from-here"),
        (Secret(env="GIVEN"), "from-env"),
        (Secret(file="secret"), "from-file \n"),
        (Secret(command=("./tell",)), "from-command"),
        (Secret(command=(PYTHON, "-c", "import os; print(os.getcwd())")), "{folder}"),
    ],
)
def test_a_secret_comes_from_where_the_settings_say(folder: Path, secret: Secret, text: str) -> None:
    assert resolve(secret, folder) == text.format(folder=folder.resolve())


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (Secret(env="ABSENT"), "the environment variable ABSENT is not set"),
        (Secret(file="absent"), "absent cannot be read: No such file or directory"),
        (Secret(file="."), "cannot be read: Is a directory"),
        (Secret(file="latin"), "latin cannot be read: it is not UTF-8 text"),
        (Secret(command=("./absent", "hunter2")), "the secret's command ./absent failed: FileNotFoundError"),
        (Secret(command=("./latin",)), "the secret's command ./latin failed: PermissionError"),
        (
            Secret(command=("sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3")),
            "the secret's command sh ended with 3",
        ),
        (Secret(command=("sh", "-c", "kill -9 $$")), "the secret's command sh ended with -9"),
        (Secret(command=("sh", "-c", "printf '\\377'")), "the secret's command sh wrote what is not UTF-8 text"),
    ],
)
def test_one_that_cannot_be_had_is_told_without_its_text(folder: Path, secret: Secret, told: str) -> None:
    with pytest.raises(SecretMissing) as caught:
        resolve(secret, folder)

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_command_that_does_not_end_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "COMMAND_S", 0.05)

    with pytest.raises(SecretMissing, match="the secret's command sleep failed: TimeoutExpired"):
        resolve(Secret(command=("sleep", "60")), folder)


def test_a_command_is_asked_nothing_through_the_terminal(folder: Path) -> None:
    with pytest.raises(SecretMissing, match="the password is empty: the command cat"):
        resolve(Secret(command=("cat",)), folder)
