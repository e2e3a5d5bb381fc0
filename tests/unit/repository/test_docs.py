"""Links, make targets and the status transitions in the documentation."""

import re
import subprocess
from pathlib import Path

import pytest

from delegation.tasks.life.model import Status
from delegation.tasks.life.transitions import ARROWS
from tests.paths import ROOT

MODULE = re.compile(r"(?<![\w./*{-])((?:[a-z_]+/)*[a-z_]+\.py)\b")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named - targets == set()


def test_every_module_that_a_page_or_a_source_names_exists():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    files = [f"/{name}" for name in names if name.endswith(".py")]
    texts = [
        name
        for name in names
        if not name.startswith(("tests/", "events/"))
        and (Path(name).suffix in {".py", ".md", ".toml", ".json", ".yaml"} or name == "Makefile")
    ]
    assert len(texts) > 500
    named = {
        (name, module)
        for name in texts
        for module in MODULE.findall((ROOT / name).read_text(encoding="utf-8"))
        if not module.startswith("acme/")  # an author's, which docs/workers.md has the reader write
    }
    assert sorted(one for one in named if not any(file.endswith(f"/{one[1]}") for file in files)) == []


def test_npx_asks_nobody():
    """Where the package is not there yet, npx without --yes waits for an answer."""
    texts = [*PAGES, ROOT / "samplconfig.toml", ROOT / "Makefile"]
    calls = [call for page in texts for call in re.findall(r"\bnpx +[^ ]+", page.read_text(encoding="utf-8"))]
    assert set(calls) == {"npx --yes"}


def test_the_transitions_of_a_task_are_those_of_the_code():
    text = (ROOT / "docs" / "architecture" / "tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*) \| (`[^|]*) \|", text, re.MULTILINE)
    named = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in rows]
    found: dict[str, set[str]] = {}
    for sources, targets in named:
        for source in set(sources) & set(Status):
            found.setdefault(source, set()).update(targets)
    assert found == ARROWS
