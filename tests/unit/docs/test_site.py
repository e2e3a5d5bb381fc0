"""The site has every page of the documentation, and its links lead to pages that it has."""

import posixpath
import re
from functools import cache

import pytest

from infra.site import sources
from infra.site.pictures import IMAGES, last_screen
from tests.paths import DOCS, ROOT

MENU = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]


@cache
def made() -> dict[str, str]:
    return sources.sources()


def pages_of_the_menu() -> list[str]:
    generated = [
        name
        for entries in sources.navigation().values()
        for entry in entries
        for name in (entry.values() if isinstance(entry, dict) else (entry,))
    ]
    return re.findall(r": (\S+\.md)$", MENU, re.MULTILINE) + [str(name) for name in generated]


def pages_of_the_site() -> set[str]:
    of_docs = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    return of_docs | {name for name in made() if name.endswith(".md")}


def test_the_menu_has_every_page_once() -> None:
    assert sorted(pages_of_the_menu()) == sorted(pages_of_the_site())


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("[a](docs/curl.md#x)", "README.md", "[a](curl.md#x)"),
        ("[a](docs/runbook)", "README.md", "[a](runbook/README.md)"),
        ("[a](CHANGELOG.md)", "README.md", "[a](changelog.md)"),
        ("[a](infra/rule/envoy.yaml)", "README.md", "a (`infra/rule/envoy.yaml`)"),
        ("[a](docs/java)", "CHANGELOG.md", "a (`docs/java`)"),
        ("![a](docs/images/task.png)", "README.md", "![a](images/task.png)"),
        (
            "[a](#two-commands) [b](https://iceberg.apache.org)",
            "README.md",
            "[a](#two-commands) [b](https://iceberg.apache.org)",
        ),
    ],
)
def test_a_link_leads_to_its_place_on_the_site(text: str, name: str, expected: str) -> None:
    assert sources.on_site(text, name) == expected


def test_links_of_the_pages_that_are_made_lead_to_pages() -> None:
    known = pages_of_the_site() | {"openapi.json"} | {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.*")}
    for name, text in made().items():
        if name.endswith(".md") and name != "rest-api.md":
            for path in re.findall(r"(?<!!)\[[^\]]*\]\((?![a-z]+:|#)([^)\s#]+)", text):
                assert posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) in known, f"{name}: {path}"


def test_the_page_of_the_api_has_its_anchors_and_loads_nothing() -> None:
    page = made()["rest-api.md"]
    assert 'id="TASK_NOT_FOUND"' in page
    assert "<style" not in page
    assert "<html" not in page


def test_the_modules_of_the_reference_exist() -> None:
    for _, modules in sources.REFERENCE.values():
        for module in modules:
            place = ROOT.joinpath("functions", *module.split("."))
            assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), module


def test_lines_that_a_terminal_drew_again_are_there_once() -> None:
    assert last_screen("one\n\x1b[?25ltwo\r\n\x1b[1A\x1b[2Kthree\n\x1b[?25h") == "one\nthree\n"


def test_the_pictures_are_small_and_load_nothing() -> None:
    found = sorted(IMAGES.iterdir())
    assert {path.name for path in found} == {"task.png", "tasks.png", "terminal.svg"}
    assert sum(path.stat().st_size for path in found) < 400_000
    assert not re.search(r"url\(.?http|@import|<script|href=", (IMAGES / "terminal.svg").read_text(encoding="utf-8"))


@pytest.mark.parametrize("asked", ["Stop all work", "A local disk", "NAT gateway", "The progress of a purge"])
def test_what_people_search_for_is_a_heading_which_the_search_shows_first(asked: str) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    assert sum(f"\n{level} {asked}\n" in page for page in pages for level in ("##", "###")) == 1
