"""Every link of the documentation leads to a file and a heading that exist; the first page leads to every other."""

import pytest

from tests.paths import DOCS, ROOT
from tests.unit.docs.pages import anchors, links, pages, pictures, slug

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file_and_a_heading(page):
    assert [str(link) for link in links(page) if not link.target.exists()] == []
    deep = [link for link in links(page) if link.anchor and link.target.suffix == ".md"]
    assert [str(link) for link in deep if link.anchor not in anchors(link.target)] == []
    assert [str(picture) for picture in pictures(page) if not picture.is_file()] == []


def test_lines_of_the_architecture_have_an_ordinary_length():
    """Rows of tables apart, which Markdown cannot break."""
    written = [DOCS / "architecture.md", *sorted((DOCS / "architecture").glob("*.md"))]
    long = [
        f"{page.name}:{number}"
        for page in written
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.startswith("|")
    ]
    assert long == []


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("The order of deletes", "the-order-of-deletes"),
        ("`delegation doctor`", "delegation-doctor"),
        ("Properties of the service (`delegation:properties`)", "properties-of-the-service-delegationproperties"),
        ("AWS, and *other* stores", "aws-and-other-stores"),
    ],
)
def test_an_anchor_is_made_as_on_github(heading, expected):
    assert slug(heading) == expected
