"""Building the servers: skipped with the reason where Go is absent, and never fetched by a test."""

from pathlib import Path

import pytest

from infra.local.errors import UnavailableError
from tests.s3_servers.__main__ import SKIPPED, main
from tests.s3_servers.programs import VERSITYGW


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_go_the_tests_are_skipped_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == SKIPPED
    assert "skipped: Go is not installed" in capsys.readouterr().out


def test_a_server_that_is_not_built_is_unavailable_and_names_the_command() -> None:
    with pytest.raises(UnavailableError, match="make s3-servers-test"):
        VERSITYGW.built()


def test_a_failed_build_names_the_module_and_leaves_no_program(tmp_path: Path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho 'go: module not found' >&2\nexit 1\n")
    (tmp_path / "go").chmod(0o755)
    with pytest.raises(UnavailableError, match=r"versitygw@v[0-9.]+: go: module not found"):
        VERSITYGW.build()
    assert not VERSITYGW.path.exists()
