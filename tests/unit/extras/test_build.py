"""What the package is built of: nothing of a former build, whole metadata, and hints that name only what it has."""

import ast
import re
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests.kit.sources import tree_of
from tests.paths import ROOT
from tests.unit.extras.fresh import copied_sources, wheel_of

FILES_OF_A_CHECKOUT = re.compile(r"\b(?:docs|infra|tests|bench)/[\w./-]+|\bMakefile\b|README\.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of a checkout that has built before, with a module that was removed since."""
    folder = tmp_path_factory.mktemp("build")
    source = copied_sources(folder / "a used checkout")
    gone = source / "build" / "lib" / "delegation" / "gone.py"
    gone.parent.mkdir(parents=True)
    gone.write_text("", encoding="utf-8")
    return zipfile.ZipFile(wheel_of(source, folder))


@pytest.mark.long
def test_a_module_that_was_removed_since_a_former_build_is_not_shipped(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "delegation/gone.py" not in names
    assert {"delegation/__init__.py", "delegation/edge/api/openapi.json"} <= {*names}


@pytest.mark.long
def test_the_metadata_names_authors_pages_and_classifiers_and_links_to_no_file(wheel: zipfile.ZipFile) -> None:
    [found] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = message_from_string(wheel.read(found).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert len(metadata.get_all("Project-URL", [])) == 2
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = str(metadata.get_payload())
    assert "# Polaris Delegation Service" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []


def test_no_message_names_a_file_that_only_a_checkout_has() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "functions" / "delegation").rglob("*.py"))
        for line, text in messages_of(path)
        if FILES_OF_A_CHECKOUT.search(text)
    ]
    assert found == []


def test_no_page_installs_the_package_by_its_name_before_it_is_published() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = [page.name for page in pages if re.search(r"pip install ['\"]?polaris-deleg", page.read_text("utf-8"))]
    assert named == []


def messages_of(path: Path) -> list[tuple[int, str]]:
    """Return the texts of a module but its docstrings, which are no messages."""
    tree = tree_of(path)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]
