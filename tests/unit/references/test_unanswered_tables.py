"""A table that the catalog does not answer for: its own trouble once others were answered in three passes."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisUnauthorized, PolarisUnavailable, error_of
from delegation.polaris.model import LoadedTable
from delegation.references.blocking import Subject
from delegation.references.errors import ReferencesNotKnown
from delegation.references.model import CatalogPass, TableEntry
from delegation.references.store import blocking_of
from delegation.storage.base import ObjectStoreUnavailable
from delegation.storage.memory import Killed, MemoryObjectStore
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import busy_table, rows
from tests.unit.references.test_refresh import MAX_AGE, Scene


def down(status: int | None = 503) -> PolarisUnavailable:
    text = "Polaris did not answer: ReadTimeout" if status is None else f"Polaris answered {status}"
    return PolarisUnavailable(text, status=status)


@pytest.fixture
def scene() -> Scene:
    here = Scene()
    for name in ("a", "bad", "z"):
        busy_table(here.one, name)
    busy_table(here.two, "u")
    return here


def table(name: str) -> TableIdentifier:
    return TableIdentifier("cat", ("ns",), name)


def one_pass(scene: Scene, **fields: Any) -> CatalogPass:
    """Make one pass, whatever becomes of it."""
    scene.now += MAX_AGE + timedelta(minutes=1)
    refresher, state = scene.refresher(**fields), scene.store.pass_of("cat")
    claimed = scene.store.write_pass(state, refresher._claimed(state, scene.now))
    with suppress(DelegationError):
        refresher._run(claimed)
    return scene.store.pass_of("cat")


def problem(scene: Scene, name: str = "bad") -> TableEntry | None:
    found = scene.store.get(table(name))
    return found if found is not None and found.problem is not None and not found.is_doubted else None


@pytest.mark.parametrize("error", [down(), down(500), down(None), OverflowError("date value out of range")])
def test_a_table_without_an_answer_is_named_after_three_passes_in_which_others_had_one(scene, error) -> None:
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    known = scene.store.get(table("bad")).areas
    first = scene.now + MAX_AGE + timedelta(minutes=1)
    scene.one.table("bad").append(rows(1))
    scene.listing.broken["bad"] = error
    for number in range(1, 4):
        state = one_pass(scene)
        assert (problem(scene) is not None, state.complete == state.number) == (number == 3, number == 3)
    found = problem(scene)
    assert (str(error) in found.problem, found.problem_since, found.is_complete) == (True, first, False)
    assert set(known) <= set(found.areas)
    assert scene.concerned("s3://lake/wh/bad/") == {"ns.bad"}
    [blocking] = blocking_of(scene.store, "cat")
    assert (blocking.subject, blocking.narrow) == (Subject.of(table("bad")), False)


def test_one_call_makes_the_three_passes_and_later_ones_count_at_once(scene) -> None:
    scene.listing.broken["bad"] = down()
    state = scene.refresher().ensure_fresh("cat", MAX_AGE)
    assert (state.complete, state.number, state.tables) == (3, 3, 4)
    scene.now += MAX_AGE + timedelta(minutes=1)
    assert scene.refresher().ensure_fresh("cat", MAX_AGE).complete == 4


@pytest.mark.parametrize("error", [down(), PolarisUnauthorized("no token")])
def test_an_outage_is_no_tables_own_trouble_however_many_passes_it_lasts(scene, error) -> None:
    for name in ("a", "bad", "z", "u"):
        scene.listing.broken[name] = error
    for _ in range(5):
        state = one_pass(scene)
        assert state.complete == 0
        assert str(error) in str(state.problem)
    assert blocking_of(scene.store, "cat") == []
    scene.listing.broken.clear()
    assert one_pass(scene).problem is None


def test_an_outage_that_begins_in_a_pass_counts_for_no_table_behind_the_last_answer(scene) -> None:
    scene.create(f"t{number:02d}" for number in range(30))
    answers = iter(range(1_000))

    def fails_after_ten() -> None:
        if next(answers) > 10:
            raise down()

    scene.listing.each_load = fails_after_ten
    for _ in range(4):
        one_pass(scene)
        answers = iter(range(1_000))
    assert blocking_of(scene.store, "cat") == []


def test_a_stretch_of_bad_tables_is_no_outage(scene) -> None:
    names = [f"c{number:02d}" for number in range(30)]
    for name in names:
        scene.one.create(name)
        scene.listing.broken[name] = down()
    state = scene.refresher().ensure_fresh("cat", MAX_AGE)
    assert (state.complete, state.tables) == (3, 34)
    assert {one.subject.name for one in blocking_of(scene.store, "cat")} == set(names)


def test_a_table_that_has_an_answer_in_between_is_counted_from_the_beginning(scene) -> None:
    for is_bad in (True, True, False, True, True):
        scene.listing.broken = {"bad": down()} if is_bad else {}
        one_pass(scene)
        assert problem(scene) is None
    one_pass(scene)
    assert problem(scene) is not None


def test_a_table_that_has_an_answer_again_is_read_and_its_exemption_ends(scene) -> None:
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.listing.broken["bad"] = down()
    scene.one.table("bad").append(rows(1))
    for _ in range(3):
        one_pass(scene)
    scene.listing.broken.clear()
    state = one_pass(scene)
    found = scene.store.get(table("bad"))
    assert (found.problem, found.problem_since, found.is_doubted, state.complete) == (None, None, False, state.number)
    assert found.metadata_location == scene.one.pointers["bad"]


def test_an_unchanged_table_that_has_an_answer_again_costs_no_reads(scene) -> None:
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.listing.broken["bad"] = down()
    for _ in range(3):
        one_pass(scene)
    scene.listing.broken.clear()
    scene.listing.asked.clear()
    one_pass(scene)
    assert scene.store.get(table("bad")).problem is None
    assert scene.listing.asked["full"] == 0


def test_a_table_that_loads_without_credentials_is_known_by_its_location(scene) -> None:
    """Its state is the one that was read: it concerns only what overlaps it."""
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    real = scene.listing.load_if_changed

    def load_if_changed(identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        if identifier.name == "bad":
            raise down()
        return real(identifier, etag)

    scene.listing.load_if_changed = load_if_changed
    for _ in range(3):
        one_pass(scene)
    assert problem(scene).is_complete
    scene.one.table("bad").append(rows(1))
    one_pass(scene)
    assert not problem(scene).is_complete


def test_a_table_whose_storage_does_not_answer_is_its_own_trouble_too(scene) -> None:
    def opened(loaded: LoadedTable) -> MemoryObjectStore:
        if loaded.identifier.name == "bad":
            raise ObjectStoreUnavailable("the bucket's region does not answer")
        return in_lake(loaded)

    in_lake, scene._opened = scene._opened, opened
    for _ in range(3):
        state = one_pass(scene)
    assert state.complete == state.number == 3
    assert problem(scene).problem.startswith("STORAGE_UNAVAILABLE")


@pytest.mark.parametrize("at", range(1, 16))
def test_a_pass_that_is_killed_and_continued_counts_a_table_once(scene, at: int) -> None:
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.listing.broken["bad"] = down()
    calls = iter(range(1, 1_000))

    def killing() -> None:
        if next(calls) == at:
            raise Killed

    scene.now += MAX_AGE + timedelta(minutes=1)
    with suppress(Killed):
        scene.refresher("first", pace=killing).ensure_fresh("cat", MAX_AGE)
    while scene.store.pass_of("cat").complete < 4:
        scene.refresher("second").ensure_fresh("cat", MAX_AGE)
    assert scene.store.pass_of("cat").complete == 4
    assert problem(scene) is not None


def test_a_namespace_whose_listing_has_no_answer_is_named_after_three_passes(scene) -> None:
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    real = scene.listing.list_tables

    def list_tables(catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        if namespace == ("ns", "inner"):
            raise down()
        return real(catalog, namespace)

    scene.listing.list_tables = list_tables
    for number in range(1, 4):
        state = one_pass(scene)
        assert (state.complete == state.number) == (number == 3)
    [blocking] = blocking_of(scene.store, "cat")
    assert (blocking.subject, blocking.is_doubted) == (Subject("cat", ("ns", "inner")), False)
    assert "ns.inner.u" in scene.concerned("s3://lake/wh/u/"), "its known tables are still visited"
    scene.listing.list_tables = real
    one_pass(scene)
    assert blocking_of(scene.store, "cat") == []


def test_who_waits_for_the_pass_learns_why_it_does_not_complete(scene) -> None:
    scene.listing.broken["bad"] = down()
    with suppress(Killed):
        one_pass(scene)
    scene.store.write_pass(
        scene.store.pass_of("cat"), CatalogPass("cat", owner="other", owned_until=scene.now + MAX_AGE, number=9,
        problem="POLARIS_UNAVAILABLE: Polaris answered 503 for cat.ns.bad", problem_since=scene.now),
    )  # fmt: skip
    with pytest.raises(ReferencesNotKnown, match=r"cat\.ns\.bad"):
        scene.refresher("me").ensure_fresh("cat", timedelta(0))


@pytest.mark.parametrize("status", [400, 500])
def test_a_table_whose_metadata_is_gone_in_a_federated_catalog_blocks_nobody(scene: Scene, status: int) -> None:
    """Its answer is the other catalog's, handed on with another type; a long path may be cut off in its text."""
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    location = scene.store.get(table("bad")).metadata_location
    message = f"Malformed request: {'x' * 300} Location does not exist: {location}"
    answer = {"error": {"message": message, "type": "BadRequestException", "code": status}}
    gone = error_of(httpx.Response(status, json=answer))
    assert location not in str(gone)
    scene.listing.broken["bad"] = gone
    state = one_pass(scene)
    assert state.complete_as_of is not None
    assert problem(scene) is None
    assert list(scene.store.unreadable("cat")) == []
    one_pass(scene)
    assert scene.store.get(table("bad")) is None or scene.store.get(table("bad")).absent
