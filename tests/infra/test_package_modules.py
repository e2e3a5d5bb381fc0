"""An author's modules in the packages for Lambda and Spark."""

import subprocess
from pathlib import Path

import pytest

from infra import package


@pytest.fixture
def author(tmp_path: Path) -> Path:
    """A folder with a package and a module."""
    author = tmp_path / "src"
    (author / "acme" / "__pycache__").mkdir(parents=True)
    (author / "acme" / "__init__.py").write_text("", encoding="utf-8")
    (author / "acme" / "__pycache__" / "x.pyc").write_text("", encoding="utf-8")
    (author / "reports.py").write_text("", encoding="utf-8")
    return author


def test_an_authors_package_and_module_are_in_the_bundles(author: Path, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    package.add_modules(built, [author / "acme", author / "reports.py"])
    assert sorted(str(file.relative_to(built)) for file in built.rglob("*.py")) == ["acme/__init__.py", "reports.py"]
    assert not list(built.rglob("*.pyc"))
    with pytest.raises(FileExistsError, match="acme is already in the package"):
        package.add_modules(built, [author / "acme"])


def test_both_packages_have_the_modules_and_what_they_need(
    author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def pip(arguments: list[str], *, check: bool) -> None:
        asked.append(arguments)
        Path(arguments[arguments.index("--target") + 1]).mkdir(parents=True)

    monkeypatch.setattr(subprocess, "run", pip)
    output = tmp_path / "out"
    arguments = ["--output", str(output), "--module", str(author / "acme"), "--requirement", "acme-client==2.1"]
    assert package.main(arguments) == 0
    assert all((output / part / "acme" / "__init__.py").is_file() for part in (package.LAMBDA, package.SPARK))
    assert ["acme-client==2.1" in one for one in asked] == [True, True]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("", "without __init__.py"), ("missing.py", "neither"), ("notes.txt", "neither"), ("delegation.py", "replace")],
)
def test_a_path_that_is_no_module_is_refused_before_anything_is_built(
    author: Path, capsys: pytest.CaptureFixture[str], path: str, reason: str
) -> None:
    for name in ("notes.txt", "delegation.py"):
        (author / name).write_text("", encoding="utf-8")
    with pytest.raises(SystemExit):
        package.main(["--module", str(author / path)])
    assert reason in capsys.readouterr().err
