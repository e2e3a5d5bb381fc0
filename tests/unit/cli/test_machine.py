"""What a machine may refuse: each is a sentence with what to do, never a traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegation.cli.errors import refused_by_machine
from tests.paths import ROOT


def delegation(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    code = "from delegation.cli import start; start()"
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": str(ROOT / "functions"), **variables}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_a_terminal_without_unicode_shows_plain_marks(tmp_path: Path) -> None:
    done = delegation("doctor", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert "Traceback" not in done.stderr
    assert any(line.startswith("x ") for line in done.stdout.splitlines()), done.stdout
    assert done.returncode == 1


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = delegation("certs", "init", "--dir", str(tmp_path / "file" / "ca"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {tmp_path / 'file' / 'ca'}")
    assert "Next: " in done.stderr


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "HOME"),
        (errno.EROFS, "HOME"),
        (errno.ENOSPC, "Free space"),
        (errno.EADDRINUSE, "port"),
    ],
)
def test_each_refusal_of_the_machine_has_a_remedy(number: int, words: str) -> None:
    error = refused_by_machine(OSError(number, os.strerror(number), "/home/me/.config"))
    assert error is not None
    assert str(error) == f"/home/me/.config: {os.strerror(number)}"
    assert words in error.next_step


def test_what_is_no_refusal_of_the_machine_stays_a_bug() -> None:
    assert refused_by_machine(OSError(errno.EINVAL, "Invalid argument")) is None
    assert refused_by_machine(OSError("without a number")) is None
