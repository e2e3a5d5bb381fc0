"""A person's first questions: each is asked on the first page and answered within two clicks, under a heading."""

import re

import pytest

from tests.paths import ROOT
from tests.unit.docs.pages import clicks, section

README = ROOT / "README.md"
FIRST_TEN = (
    ("How do I try the service on my machine?", "README.md", "two-commands", "make demo"),
    ("What does a purge delete, and in which order?", "docs/architecture/purging.md", "the-order-of-deletes", "last"),
    ("What happens if a purge is killed?", "docs/architecture.md", "what-it-promises", "after any crash"),
    ("Which tables does the service refuse to purge?", "docs/architecture/guards.md", "guards", "`gc.enabled=false`"),
    (
        "Does a purge delete files that another table uses?",
        "docs/architecture/references.md",
        "files-that-other-tables-use",
        "never deletes",
    ),
    ("How do I send a purge and follow it?", "docs/command.md", "delegation-submit", "`--wait`"),
    ("How do I use a Polaris that I cannot change?", "docs/gateway.md", "drop-with-purge", "tombstone"),
    ("How do I deploy to AWS?", "docs/deployment.md", "7-the-first-deployment", "deploy"),
    ("What does the service cost?", "docs/costs.md", "a-month", "USD"),
    ("An alarm is on: what do I do?", "docs/runbook/README.md", "first-minute", "`delegation doctor`"),
)
"""What a person asks first, the page and the heading with the answer, and words of the answer."""


def asked() -> dict[str, str]:
    """The questions of the first page, and the cell with the links that follow each."""
    rows = re.findall(r"^\| ([A-Z][^|]*\?[^|]*) \| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize(("question", "page", "heading", "words"), FIRST_TEN, ids=[one[0] for one in FIRST_TEN])
def test_a_first_question_is_answered_within_two_clicks(question: str, page: str, heading: str, words: str) -> None:
    answer = ROOT / page
    assert question in asked()
    assert clicks(README)[answer] <= 2
    assert words in section(answer, heading)


def test_the_row_of_a_question_leads_to_its_page() -> None:
    for question, page, *_ in FIRST_TEN:
        named = re.findall(r"\]\(([^)#]*)", asked()[question])
        assert page in {name or "README.md" for name in named}, question


def test_every_page_of_the_documentation_is_within_two_clicks_of_the_first() -> None:
    """The pages of alarms, which the runbook lists, included."""
    found = clicks(README)
    every = (ROOT / "docs").rglob("*.md")
    assert sorted(str(path.relative_to(ROOT)) for path in every if found.get(path, 9) > 2) == []


def test_a_question_that_is_asked_has_an_answer() -> None:
    assert len(asked()) >= len(FIRST_TEN)
    assert [question for question, cell in asked().items() if "](" not in cell] == []
