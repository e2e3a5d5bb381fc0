"""What `make release` refuses, and the notes that it writes."""

import subprocess
from pathlib import Path

import pytest

from infra.release import NotReleasable, git, prepared

CHANGELOG = "# Changelog\n\n## 1.2.0, 2026-12-01\n\n- One line.\n\n## 1.1.0, 2026-11-01\n\n- Another.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "c"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_the_notes_are_the_section_of_the_version(checkout: Path) -> None:
    assert prepared(checkout) == ("1.2.0", "- One line.\n")


def test_a_version_is_tagged_once(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.0")
    with pytest.raises(NotReleasable, match=r"v1\.2\.0 exists"):
        prepared(checkout)


def test_a_checkout_with_changes_is_refused(checkout: Path) -> None:
    (checkout / "more").write_text("", encoding="utf-8")
    with pytest.raises(NotReleasable, match="commit them"):
        prepared(checkout)


@pytest.mark.parametrize("heading", ["## 1.2.0, unreleased", "## 1.2, 2026-12-01", "## 11.2.0, 2026-12-01"])
def test_a_version_without_its_dated_section_is_refused(checkout: Path, heading: str) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("## 1.2.0, 2026-12-01", heading), encoding="utf-8")
    with pytest.raises(NotReleasable, match=r"1\.2\.0, YYYY"):
        prepared(checkout)
