"""A log equals a list, whatever is appended, dropped and stored; it is written in few and growing chunks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polaris_persistence.errors import CorruptObject
from polaris_persistence.iceberg.layout import Json
from polaris_persistence.iceberg.log import Log, same
from polaris_persistence.iceberg.objects import LogState
from tests.persistence.iceberg.iceberg_fixtures import Objects


def entry(number: int) -> Json:
    return {"timestamp-ms": 1_700_000_000_000 + number, "snapshot-id": (number * 0x9E3779B97F4A7C15) & (2**63 - 1)}


odd = st.sampled_from([{}, {"snapshot-id": 1}, {"snapshot-id": 1, "timestamp-ms": 2}, {"a": [1, {"b": None}]}])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 60)),
        st.tuples(st.just("odd"), odd),
        st.tuples(st.just("drop"), st.integers(0, 90)),
        st.tuples(st.just("replace"), st.lists(st.integers(0, 9).map(entry), max_size=50)),
        st.tuples(st.just("shift"), st.integers(0, 40)),
        st.tuples(st.just("store"), st.none()),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(steps)
def test_a_log_equals_a_list(history: list[tuple[str, object]]) -> None:
    objects = Objects()
    log = Log(LogState(), objects.fetch)
    model: list[Json] = []
    for step, argument in history:
        if step == "append":
            new = [entry(len(model) + number) for number in range(int(str(argument)))]
            model += new
            for one in new:
                log.append(one)
        elif step == "odd":
            assert isinstance(argument, dict)
            model.append(argument)
            log.append(argument)
        elif step == "drop":
            del model[: int(str(argument))]
            log.drop_oldest(int(str(argument)))
        elif step == "replace":
            assert isinstance(argument, list)
            model = list(argument)
            log.replace(model)
        elif step == "shift":
            model = [*model[int(str(argument)) :], entry(-1)]
            log.replace(model)
        else:
            # As stored and read again.
            log = Log(LogState.model_validate(log.finish(objects.write).model_dump()), objects.fetch)
        assert log.entries() == model
        assert len(log) == len(model)


def test_entries_are_rewritten_a_few_times_and_stored_in_few_chunks() -> None:
    objects = Objects()
    state = LogState()
    for number in range(5_000):
        log = Log(state, objects.fetch)
        log.append(entry(number))
        state = log.finish(objects.write)
    assert len(state.chunks) < 12
    assert len(state.tail) < 40
    # 5,000 entries of 19 bytes: 95 kB once.
    assert sum(size for _, size in objects.written) < 10 * 95_000
    assert Log(state, objects.fetch).entries() == [entry(number) for number in range(5_000)]


def test_missing_entries_raise_corrupt_object() -> None:
    objects = Objects()
    log = Log(LogState(), objects.fetch)
    log.replace([entry(number) for number in range(300)])
    state = log.finish(objects.write)
    objects.stored.clear()
    with pytest.raises(CorruptObject, match="are missing"):
        Log(state, objects.fetch).entries()


@pytest.mark.parametrize("row", [[1], 5, None, [1, 2, 3]])
def test_a_row_with_other_fields_raises_corrupt_object(row: object) -> None:
    with pytest.raises(CorruptObject, match="fields of the log"):
        Log(LogState(names=("a", "b"), tail=(row,)), Objects().fetch)


def test_the_same_json_is_of_the_same_type() -> None:
    assert same({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]})
    for left, right in ((1, 1.0), (1, True), ("1", 1), ([1], [1, 1]), ({"a": 1}, {"b": 1}), ({}, []), (0.0, False)):
        assert not same(left, right)
