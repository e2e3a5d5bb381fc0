"""One term for one idea: the glossary's rejected synonyms appear nowhere, and what texts cite exists."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import DOCS, ROOT

GLOSSARY = DOCS / "glossary.md"
THIS = Path(__file__)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
OLD_CITATIONS = re.compile(r"DESIGN\b|FACTS\b|STYLE\.md|§\s?\d|(?<!wheels)(?<![a-z])(?!wheels-)[a-z]+-[a-z]+\.txt")
MODULE = re.compile(r"(?<![\w./*{-])((?:[a-z_]+/)*[a-z_]+\.py)\b")


def entries() -> list[str]:
    """Return the glossary's entries, each on one line."""
    text = re.sub(r"\n  (?=\S)", " ", GLOSSARY.read_text(encoding="utf-8"))
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]


def synonyms() -> list[str]:
    """Return the words that an entry rejects: `*Not look again, looks again.*`"""
    found = (re.search(r"\*Not ([^*]+)\.\*$", entry) for entry in entries())
    return [word.strip() for hit in found if hit is not None for word in hit[1].split(",")]


@cache
def texts() -> dict[str, str]:
    """Every text file of the repository that people wrote, by its path."""
    found: dict[str, str] = {}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        written = path.suffix in {".py", ".md", ".toml", ".json", ".yaml"} or path.name == "Makefile"
        recorded = "tests/golden/" in name or "tests/fixtures/" in name or name.startswith("events/")
        if written and path.exists() and path not in {GLOSSARY, THIS} and not (recorded and path.suffix == ".json"):
            found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def spaced() -> dict[str, str]:
    """The same texts with the words of a CamelCase name apart, in lower case."""
    return {name: CAMEL.sub("_", text).lower() for name, text in texts().items()}


def occurrences(spaced: str, synonym: str) -> list[int]:
    """The lines of a text that hold a synonym, also where it is broken over two lines or part of a name."""
    first, *rest = synonym.lower().split()
    if first not in spaced:
        return []
    pattern = r"(?<![a-z])" + r"[\s_#-]+".join(map(re.escape, (first, *rest))) + r"(?![a-z])"
    return [spaced.count("\n", 0, hit.start()) + 1 for hit in re.finditer(pattern, spaced)]


@pytest.mark.parametrize("synonym", synonyms())
def test_a_synonym_that_the_glossary_rejects_is_not_used(synonym):
    found = {name: lines for name, text in spaced().items() if (lines := occurrences(text, synonym))}
    assert found == {}


@pytest.mark.parametrize("text", ["it goes on", "goes\n    # on", "def goes_on(self)", "class GoesOn", "Goes on."])
def test_a_synonym_is_found_in_prose_comments_and_names(text):
    assert occurrences(CAMEL.sub("_", text).lower(), "goes on") != []


@pytest.mark.parametrize("text", ["it goes only", "cargoes on", "it goes", "forgoes_on"])
def test_a_synonym_is_not_found_inside_other_words(text):
    assert occurrences(CAMEL.sub("_", text).lower(), "goes on") == []


SAYS = re.compile(r"(?<![`\w])says(?![`\w])")
PAGES = ("docs/", "README.md")
CODE = ("functions/", "infra/", "spark/")
SOURCES = {"docs/costs.md"}
"""Pages with prices' sources in the words of `worksets/prices.json`."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield a module's comments and docstrings with the line that each begins on."""
    for node in ast.walk(ast.parse(source)):
        for inner in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                yield inner.lineno, str(inner.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def saying(name: str, text: str) -> list[int]:
    """Return the lines of a page, or of what a module explains, where something says what it states, names or has."""
    if not SAYS.search(text):
        return []
    parts = prose(text) if name.endswith(".py") else enumerate(text.splitlines(), 1)
    return [line for line, part in parts if SAYS.search(part)]


def test_records_answers_and_pages_state_what_they_have() -> None:
    asked = {
        name: text
        for name, text in texts().items()
        if (name.endswith(".md") and name.startswith(PAGES) and name not in SOURCES)
        or (name.endswith(".py") and name.startswith(CODE))
    }
    assert len(asked) > 500
    assert {name: lines for name, text in asked.items() if (lines := saying(name, text))} == {}


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.md", "# Receipt\nIt says why.", [2]),
        ("a.py", 'x = 1\n"""The record says why."""\n', [2]),
        ("a.py", "# The answer says so.\n", [1]),
        ("a.py", 'print("it says no")\nsays = 1  # `says` is a member\n', []),
    ],
)
def test_what_says_is_found_in_pages_comments_and_docstrings(name: str, text: str, lines: list[int]) -> None:
    assert saying(name, text) == lines


def test_the_glossary_explains_each_term_once_in_sentences_and_twelve_of_them_first() -> None:
    explained = [hit for entry in entries() if (hit := re.fullmatch(r"\*\*(.+?)\*\*: ([A-Z].+\.\*?)", entry))]
    terms = [hit[1] for hit in explained]
    assert len(terms) == len(set(terms)) >= 40
    phrases = [entry for entry in entries() if entry.startswith("Write ")]
    assert len(explained) + len(phrases) == len(entries())
    first = GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1]
    assert first.startswith("Twelve words\n")
    assert first.count("\n- **") == 12
    assert len(synonyms()) > 10


def test_no_text_cites_a_page_by_a_private_number():
    found = {name: hits for name, text in texts().items() if (hits := OLD_CITATIONS.findall(text))}
    assert found == {}


def test_every_module_that_a_text_names_exists():
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [f"/{name}" for name in listed.stdout.splitlines()]
    named = {
        (name, module)
        for name, text in texts().items()
        if not name.startswith("tests/")
        for module in MODULE.findall(text)
        if not module.startswith("acme/")  # an author's, which docs/workers.md has the reader write
    }
    assert sorted(one for one in named if not any(file.endswith(f"/{one[1]}") for file in files)) == []
