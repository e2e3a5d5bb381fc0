"""An author's modules in the packages for Lambda and Spark."""

from pathlib import Path

import pytest

from infra import package

LINE = "issue 13, line 17"


@pytest.mark.xfail(strict=True, reason=f"{LINE}: packaging leaves an author's modules out")
def test_an_authors_package_and_module_are_in_the_bundles(tmp_path: Path) -> None:
    author, built = tmp_path / "src", tmp_path / "built"
    (author / "acme" / "__pycache__").mkdir(parents=True)
    (author / "acme" / "__init__.py").write_text("", encoding="utf-8")
    (author / "acme" / "__pycache__" / "x.pyc").write_text("", encoding="utf-8")
    (author / "reports.py").write_text("", encoding="utf-8")
    built.mkdir()
    package.add_modules(built, [author / "acme", author / "reports.py"])
    assert sorted(str(file.relative_to(built)) for file in built.rglob("*.py")) == ["acme/__init__.py", "reports.py"]
    assert not list(built.rglob("*.pyc"))
