"""Listings of names: by prefix, in few round trips, without the entities."""

import itertools

import pytest

from polaris_persistence.commits.directories import Directory, entity_committer
from polaris_persistence.commits.entities import EntityChanges
from polaris_persistence.errors import PersistenceError
from polaris_persistence.index.keys import IndexKey
from tests.kit.errors import coded
from tests.persistence.builders import CountingBackend, Entity, store_on
from tests.persistence.worlds import ENTITY_TYPES, entity_change

IDS = itertools.count(1)
NAMES = ["a", "a\x00b", "ab", "aé", "a\U0010ffff", "b", "B", "", "ba", "a\x01", *(f"t{one:04}" for one in range(40))]


def directory(backend: CountingBackend) -> Directory[Entity]:
    store = store_on(backend, types=ENTITY_TYPES, ids=IDS.__next__)
    return Directory(store, entity_committer(store, "main"), Entity)


def with_names(names: list[str]) -> CountingBackend:
    backend = CountingBackend()
    store_on(backend, types=ENTITY_TYPES, ids=IDS.__next__).create_reference("main")

    def change(entities: EntityChanges, _attempt: object) -> None:
        for name in names:
            entities.put(IndexKey.of(name), Entity(name=name))

    directory(backend)._committer.commit(entity_change(change))
    return backend


@pytest.mark.parametrize("prefix", ["", "a", "ab", "aé", "b", "t", "t00", "t0039", "x", "a\x00", "a\x01", "\U0010ffff"])
@pytest.mark.parametrize("limit", [1, 3, 1_000])
def test_the_names_with_a_prefix_are_listed_in_order(prefix: str, limit: int) -> None:
    names = directory(with_names(NAMES))
    found: list[str] = []
    token: str | None = None
    for _ in range(100):
        page = names.names(limit=limit, token=token, prefix=prefix)
        found += page.names
        token = page.next_token
        if token is None:
            break
    wanted = sorted((name for name in NAMES if name.startswith(prefix)), key=lambda name: name.encode())
    assert found == wanted
    assert [one.value.name for _, one in names.page(limit=1_000, prefix=prefix).entities] == wanted


def test_a_token_belongs_to_its_prefix() -> None:
    names = directory(with_names(NAMES))
    token = names.names(limit=1, prefix="t").next_token
    assert token is not None
    with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
        names.names(limit=1, prefix="a", token=token)


def test_a_thousand_names_of_many_take_three_round_trips() -> None:
    """Issue 32, line 12: without reading entities."""
    backend = with_names([f"table_{number:06}" for number in range(20_000)])
    names = directory(backend)
    for prefix in ("", "table_01"):
        fresh = directory(backend)
        backend.calls.clear()
        assert len(fresh.names(limit=1_000, prefix=prefix).names) == 1_000
        assert len(backend.calls) <= 3, backend.calls
    assert names.names(limit=1).names == ("table_000000",)
