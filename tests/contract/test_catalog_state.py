"""What the stand-in's catalog demands of its state: in memory (the reference), and in the NoSQL persistence."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.catalog import state as memory
from infra.local.catalog.entities import CatalogEntities, CatalogEntry, CatalogView
from infra.local.catalog.errors import RestError
from infra.local.catalog.persisted import PersistedState
from infra.local.catalog.state import CatalogState, Key, MemoryState, Records, T
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.errors import BackendUnavailable, CommitOutcomeUnknown, CommitUnknown
from tests.contract.polaris.world import PolarisView, stand_in
from tests.effort import examples
from tests.persistence.contract.backends import local_backend

SALES = ("sales",)


class Refused(Exception):
    """Ends a step on purpose."""


def persisted(backend: MemoryBackend | None = None) -> PersistedState:
    return PersistedState(backend or MemoryBackend(), realm="POLARIS", catalog="lake")


def losing() -> PersistedState:
    """A store that loses the answer of every other swap, half of them before it was made."""
    draw = random.Random(1)

    def lose(operation: str) -> None:
        if operation == "replace_reference" and draw.random() < 0.25:
            raise CommitOutcomeUnknown("no answer")

    return persisted(MemoryBackend(before=lose, after=lose))


STATES: dict[str, Callable[[], CatalogState]] = {"memory": MemoryState, "persistence": persisted, "losing": losing}


@pytest.fixture(params=[*STATES, pytest.param("dynamodb-local", marks=pytest.mark.dynamodb_local)])
def state(request: pytest.FixtureRequest) -> Iterator[CatalogState]:
    if request.param in STATES:
        yield STATES[request.param]()
        return
    server: DynamoDbLocal = request.getfixturevalue("dynamodb_local")
    with local_backend(server.url) as backend:
        yield PersistedState(backend, realm="POLARIS", catalog="lake")


def put(key: Key, value: str) -> Callable[[Records], None]:
    return lambda records: records.put(key, CatalogView(metadata_location=value))


def value_at(state: CatalogState, key: Key) -> str | None:
    found = state.atomically(lambda records: records.get(key, CatalogView), operation="read")
    return None if found is None else found.metadata_location


def keys_of(state: CatalogState, *prefix: str) -> list[Key]:
    return state.atomically(lambda records: records.keys(prefix), operation="list")


def table(number: int = 0) -> CatalogEntry:
    location = "s3://lake/t"
    return CatalogEntry(metadata_location=f"{location}/{number}", table_uuid="u", location=location, used=(location,))


def check_whole(state: CatalogState) -> None:
    """A step that raises changes nothing, whatever it did before."""
    state.atomically(put(("k", "old"), "1"), operation="put")

    def step(records: Records) -> None:
        records.put(("k", "old"), CatalogView(metadata_location="2"))
        records.put(("k", "new"), CatalogView(metadata_location="2"))
        assert records.keys(("k",)) == [("k", "new"), ("k", "old")]
        records.remove(("k", "old"))
        raise Refused

    with pytest.raises(Refused):
        state.atomically(step, operation="refused")
    assert (keys_of(state, "k"), value_at(state, ("k", "old"))) == ([("k", "old")], "1")


def test_a_step_is_applied_as_a_whole_or_not_at_all(state: CatalogState) -> None:
    check_whole(state)


def test_a_state_that_keeps_half_of_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory._MemoryRecords, "undo", lambda _self: None)
    with pytest.raises(AssertionError):
        check_whole(MemoryState())


def test_keys_begin_with_whole_elements_and_are_in_order(state: CatalogState) -> None:
    names = ["b", "a", "ab", "a.b", "a\0", "é", "\U0001f600", "\uff5e", "A"]
    for name in names:
        state.atomically(put(("k", "1", name), name), operation="put")
    state.atomically(put(("k", "11", "other"), "other"), operation="put")
    state.atomically(put(("l", "1", "other"), "other"), operation="put")
    assert [key[-1] for key in keys_of(state, "k", "1")] == sorted(names)
    assert keys_of(state, "k", "1", "a") == [("k", "1", "a")]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=2)
WRITES = st.tuples(st.sampled_from("kl"), NAMES, st.integers(0, 3))


@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("made", STATES.values(), ids=STATES)
@given(steps=st.lists(st.tuples(st.lists(WRITES, max_size=4), st.booleans()), max_size=6))
def test_any_steps_leave_what_a_dictionary_would_have(
    made: Callable[[], CatalogState], steps: list[tuple[list[tuple[str, str, int]], bool]]
) -> None:
    state, model = made(), dict[Key, str]()

    def apply(records: Records, writes: list[tuple[str, str, int]], ends: bool) -> None:
        for kind, name, value in writes:
            if value:
                records.put((kind, name), CatalogView(metadata_location=str(value)))
            else:
                records.remove((kind, name))
        if ends:
            raise Refused

    for writes, ends in steps:
        with contextlib.suppress(Refused):
            state.atomically(lambda records, now=(writes, ends): apply(records, *now), operation="apply")
            for kind, name, value in writes:
                model.pop((kind, name), None)
                model |= {(kind, name): str(value)} if value else {}
        found = [key for kind in "kl" for key in keys_of(state, kind)]
        assert {key: value_at(state, key) for key in found} == model
        assert found == sorted(model)


def test_no_step_of_several_threads_is_lost_or_applied_twice(state: CatalogState) -> None:
    def count(records: Records) -> int:
        found = records.get(("k", "count"), CatalogView)
        new = CatalogView(metadata_location=str(int(found.metadata_location) + 1 if found else 1))
        records.put(("k", "count"), new)
        return int(new.metadata_location)

    answers: list[int] = []

    def work() -> None:
        answers.extend(state.atomically(count, operation="count") for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(answers) == list(range(1, 61))
    assert value_at(state, ("k", "count")) == "60"


def test_an_entity_made_again_under_a_name_has_another_id(state: CatalogState) -> None:
    catalog = CatalogEntities(state)
    catalog.create_namespace(SALES, {})
    catalog.add((SALES, "t"), table())
    first = catalog.path(SALES, "t")
    catalog.rename((SALES, "t"), (SALES, "u"))
    assert catalog.path(SALES, "u") == first
    assert catalog.named(first[-1]) == (SALES, "u")
    catalog.drop((SALES, "u"))
    catalog.add((SALES, "t"), table())
    assert catalog.path(SALES, "t")[-1] != first[-1]
    assert (catalog.named(first[-1]), catalog.named(first[-2])) == (None, (SALES, None))


def test_tables_are_swapped_together_or_not_at_all(state: CatalogState) -> None:
    catalog = CatalogEntities(state)
    catalog.create_namespace(SALES, {})
    names = [(SALES, name) for name in ("a", "b")]
    for name in names:
        catalog.add(name, table())
    before = {name: catalog.get(name) for name in names}
    catalog.swap(names[1], before[names[1]], table(1))
    with pytest.raises(RestError, match=r"changed during the commit: sales\.b"):
        catalog.swap_all({name: (before[name], table(2)) for name in names})
    assert [catalog.get(name).metadata_location[-1] for name in names] == ["0", "1"]
    catalog.swap_all({name: (catalog.get(name), table(2)) for name in names})
    assert [catalog.get(name).metadata_location[-1] for name in names] == ["2", "2"]


def test_what_one_process_stored_another_reads_and_a_new_one_finds() -> None:
    backend = MemoryBackend()
    one, other = persisted(backend), persisted(backend)
    check_whole(one)
    assert value_at(other, ("k", "old")) == "1"
    other.atomically(put(("k", "old"), "3"), operation="put")
    assert value_at(one, ("k", "old")) == "3"
    one.close()
    other.close()
    assert value_at(persisted(backend), ("k", "old")) == "3"


def test_what_cannot_be_stored_and_a_store_that_fails_are_refusals_that_change_nothing() -> None:
    fails = [False]

    def before(_operation: str) -> None:
        if fails[0]:
            raise BackendUnavailable("throttled")

    state = persisted(MemoryBackend(before=before))
    check_whole(state)
    for name, value, status in (("old", "\ud800", 400), ("n" * 9_000, "2", 400), ("old", "2", 503)):
        fails[0] = status == 503
        with pytest.raises((RestError, ValueError)) as refused:
            state.atomically(put(("k", name), value), operation="put")
        assert getattr(refused.value, "status", 400) == status
    fails[0] = False
    assert (keys_of(state, "k"), value_at(state, ("k", "old"))) == ([("k", "old")], "1")


class Unanswered:
    """A state whose next `lost` changes are made, and nobody learns of it."""

    def __init__(self) -> None:
        self.lost = 0
        self._state = MemoryState()

    def atomically(self, step: Callable[[Records], T], *, operation: str) -> T:
        result = self._state.atomically(step, operation=operation)
        if self.lost and operation.startswith("swap"):
            self.lost -= 1
            raise CommitUnknown(7)
        return result


@pytest.mark.parametrize("newer", [False, True])
def test_a_commit_whose_outcome_the_state_does_not_know_keeps_its_file(newer: bool) -> None:
    unanswered = Unanswered()
    with stand_in(newer=newer, state=unanswered) as server:
        world = PolarisView(server)
        world.namespace()
        path = f"namespaces/{world.name}/tables/t"
        world.create("t")
        unanswered.lost = 1
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        answer = world.catalog("POST", path, body)
        assert answer.status_code == (500 if newer else 400)
        assert answer.json()["error"]["type"] == "CommitStateUnknownException"
        assert world.catalog("GET", path).json()["metadata"]["properties"] == {"a": "b"}
        world.close()
