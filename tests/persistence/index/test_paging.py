"""Pages of one listing read one commit; a token is valid for its listing only."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polaris_persistence.errors import PersistenceError
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.paging import Listing, PageToken, read_page
from polaris_persistence.index.spill import IndexPolicy
from tests.effort import examples
from tests.kit.errors import coded
from tests.persistence.index.index_fixtures import Catalog, keys, name, table

ALL = Listing()


NAMES = examples(100_000)


def test_many_names_are_listed_as_of_one_commit_while_others_commit() -> None:
    catalog = Catalog(IndexPolicy())
    catalog.put((name(number), table(number)) for number in range(NAMES))
    heads = {1: catalog.embedded}
    seen: list[tuple[IndexKey, int]] = []
    token: str | None = None
    pages = 0
    while token is not None or pages == 0:
        after = PageToken.decode(token, ALL) if token else None
        commit = after.commit_id if after else max(heads)
        index = Catalog(stripes=catalog.stripes, embedded=heads[commit]).load()
        page = read_page(index, commit, ALL, limit=NAMES // 10, after=after)
        seen += [(key, ref.id) for key, ref in page.entries]
        token = page.next_token
        pages += 1
        # Commits in between: what is still to come is removed, and added, and changed.
        doomed = [name(number) for number in range(pages, NAMES, 5_000)]
        catalog.commit(lambda index, doomed=doomed: [index.remove(key) for key in doomed] and None)  # type: ignore[misc]
        catalog.put([(IndexKey.of("ns050", f"new{pages}"), table(1)), (name(NAMES - 1), table(1))])
        heads[len(heads) + 1] = catalog.embedded
    assert pages == 10 + (NAMES % 10 > 0)
    assert seen == sorted((name(number), number) for number in range(NAMES))
    assert len(list(catalog.load().items())) < NAMES


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_all_pages_together_are_the_listing(limit: int) -> None:
    catalog = Catalog(IndexPolicy(min_embedded=50, max_embedded=50, stripe=100))
    index = catalog.put((name(number), table(number)) for number in range(300))
    listing = Listing(start=name(2), end=name(20), prefix=None)
    seen = []
    after = None
    while True:
        page = read_page(index, 5, listing, limit=limit, after=after)
        assert len(page.entries) <= limit
        seen += page.entries
        if page.next_token is None:
            break
        after = PageToken.decode(page.next_token, listing)
    assert seen == list(index.items(name(2), name(20)))


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), keys, st.none() | keys, st.none() | keys, st.none() | keys)
def test_a_token_is_valid_for_its_listing_only(
    commit: int, last: IndexKey, prefix: IndexKey | None, start: IndexKey | None, end: IndexKey | None
) -> None:
    listing = Listing(prefix, start, end)
    token = PageToken(commit, last)
    text = token.encode(listing)
    assert text.replace("-", "").replace("_", "").isalnum()
    assert PageToken.decode(text, listing) == token
    other = IndexKey.of("other", "listing")
    for another in (Listing(other, start, end), Listing(prefix, other, end), Listing(prefix, start, other)):
        with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
            PageToken.decode(text, another)


@settings(deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
        PageToken.decode(text, ALL)


def test_every_changed_character_of_a_token_is_refused() -> None:
    text = PageToken(77, name(5)).encode(ALL)
    for at in range(len(text) - 1):
        with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
            PageToken.decode(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :], ALL)


def test_a_token_with_a_right_checksum_and_invalid_content_is_refused() -> None:
    for content in (b"\x01" + b"\xff" * 8 + b"a", b"\x01" + bytes(8) + b"\xff", b"\x02" + bytes(8) + b"a"):
        text = base64.urlsafe_b64encode(content + ALL.checksum(content)).decode()
        with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
            PageToken.decode(text, ALL)


def test_a_token_of_another_commit_and_a_page_of_nothing_are_refused() -> None:
    index = Catalog().put([(name(1), table(1))])
    with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
        read_page(index, 5, ALL, limit=1, after=PageToken(4, name(0)))
    with pytest.raises(ValueError):
        read_page(index, 1, ALL, limit=0)
