"""A path that names no object and is kept is never inside any location, so nothing can delete it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.errors import GuardRefused
from delegation.iceberg.paths import ALL_KINDS, CANONICAL, Spelling, as_written, is_marked
from delegation.removal.path_guard import PathGuard, kept_spellings
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.locations import Roots, canonical

PATHS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["s3://b/t/", "s3a://b/t/", "gs://b/t/", "file:///b/", "/b/t/", "s3://x--table-s3/", "s3:///", ""]),
    st.text(alphabet="ab/.é \ud800", max_size=6),
    st.sampled_from(["", "", "x", "#", "?v=1", "/../x"]),
)
KEEPING = PurgeOptions(unsupported="keep", ambiguous="keep", outside="delete")


@given(st.lists(PATHS, max_size=5))
def test_each_path_is_canonical_or_marked_and_can_be_stored(paths: list[str]) -> None:
    spelled = Spelling(ALL_KINDS).all(paths)
    for path, one in zip(paths, spelled, strict=True):
        assert one.encode()
        if is_marked(one):
            assert as_written(one) == path.encode("utf-8", "backslashreplace").decode()
            with pytest.raises(GuardRefused):
                canonical(path)
        else:
            assert one == canonical(path)


@given(st.lists(PATHS, min_size=1, max_size=6), st.sampled_from(["s3://b", "s3://b/t", "s3://a"]))
def test_a_marked_path_is_never_deleted_even_with_outside_delete(paths: list[str], root: str) -> None:
    rows = [(path, 8, 1) for path in sorted(set(Spelling(ALL_KINDS).all(paths)))]
    guard = PathGuard(Roots([root]), None, KEEPING)
    deleted = [row[0] for verdict, group in guard.verdicts(rows) for row in group if not verdict]
    assert not [path for path in deleted if is_marked(path) or not path.startswith("s3://")]


@given(PATHS)
def test_without_a_setting_every_such_path_is_refused(path: str) -> None:
    assert kept_spellings(PurgeOptions()) == frozenset()
    try:
        expected = canonical(path)
    except GuardRefused as error:
        with pytest.raises(type(error)):
            CANONICAL.one(path)
    else:
        assert CANONICAL.one(path) == expected
