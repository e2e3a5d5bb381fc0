"""Generated pages are as their generators write them, and no generator is missing from the list."""

import ast
import fnmatch
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.sources import tree_of
from tests.paths import ROOT
from tests.regenerate import generators
from tests.regenerate.__main__ import check
from tests.regenerate.generators import GENERATORS, Generator, made, stale

PAGES = [each for each in GENERATORS if each.compared_by is None]
WRITES = {"write_text", "write_bytes", "copytree", "copy"}
BELOW_ROOT = {"ROOT", "DOCS", "__file__"}
NOT_GENERATORS = {
    "infra/package/description.py": "builds what no commit has",
    "tests/bench/records/results.py": "adds a measurement: `make bench-record`",
    "tests/release_check/__main__.py": "adds records of long targets",
    "tests/clients/programs.py": "copies into the folder of a run",
}


@pytest.mark.parametrize("generator", PAGES, ids=lambda each: each.module)
def test_a_generated_file_is_as_its_generator_writes_it(generator: Generator) -> None:
    found = stale(generator)
    assert found == [], f"{', '.join(found)}: stale, run `make regenerate`"


@pytest.mark.parametrize("generator", PAGES, ids=lambda each: each.module)
def test_a_generator_writes_the_files_that_the_list_names(generator: Generator) -> None:
    assert sorted(str(path.relative_to(ROOT)) for path in made(generator)) == sorted(generator.writes)


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda each: each.module)
def test_every_generator_and_every_file_of_it_exists(generator: Generator) -> None:
    place = ROOT.joinpath(*generator.module.split("."))
    assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
    assert [each for each in generator.writes if not any(ROOT.glob(each))] == []
    assert generator.compared_by is None or (ROOT / generator.compared_by).exists()


def test_a_page_that_is_edited_by_hand_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = next(each for each in PAGES if each.module == "infra.error_page")
    edited = {path: text + "by hand\n" for path, text in made(errors).items()}
    monkeypatch.setattr(generators, "made", lambda _: edited)
    assert check([errors]) == 1
    assert "docs/errors.md is stale: run `make regenerate`" in capsys.readouterr().out


def tracked() -> list[Path]:
    """The modules that may write into the checkout: not those of the service, no tests, no fixtures of pytest."""
    listed = subprocess.run(
        ["git", "ls-files", "infra/*.py", "tests/*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [
        Path(name)
        for name in listed.splitlines()
        if not fnmatch.fnmatch(Path(name).name, "test_*.py") and Path(name).name != "conftest.py"
    ]


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression or a function uses, `NAME` and `module.NAME`, and of calls the method."""
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    attributes = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    used |= {f"{each.value.id}.{each.attr}" for each in attributes if isinstance(each.value, ast.Name)}
    return used | {each.attr for each in attributes}


def places_of(tree: ast.Module) -> set[str]:
    """The constants of a module whose value is a path below the checkout."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign | ast.Assign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            used = names_in(statement.value)
            path = any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div) for each in ast.walk(statement))
            if (path or "with_name" in used) and used & (BELOW_ROOT | found):
                found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


def imported(tree: ast.Module, places: dict[str, set[str]]) -> Iterator[str]:
    """The constants of other modules that are such paths, as this module names them."""
    for statement in (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)):
        for each in statement.names:
            if each.name in places.get(statement.module or "", ()):
                yield each.name
            yield from (f"{each.name}.{name}" for name in places.get(f"{statement.module}.{each.name}", ()))


def writers() -> Iterator[str]:
    """The modules with a function `files`, or with one that uses such a constant and writes a file."""
    trees = {path: tree_of(ROOT / path) for path in tracked()}
    places = {".".join(path.with_suffix("").parts): places_of(tree) for path, tree in trees.items()}
    for path, tree in trees.items():
        here = {*places[".".join(path.with_suffix("").parts)], *imported(tree, places)}
        functions = [each for each in tree.body if isinstance(each, ast.If)]
        functions += [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        page = any(isinstance(each, ast.FunctionDef) and each.name == "files" for each in tree.body)
        if page or any(names_in(each) & WRITES and names_in(each) & here for each in functions):
            yield str(path)


def test_no_generator_is_missing_from_the_list() -> None:
    listed = [each.module.replace(".", "/") for each in GENERATORS]
    found = set(writers())
    missing = {
        name for name in found if not any(name in {f"{each}.py", f"{each}/{Path(name).name}"} for each in listed)
    }
    assert missing == NOT_GENERATORS.keys()
    assert len(found) > 12
