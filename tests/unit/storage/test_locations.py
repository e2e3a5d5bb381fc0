"""Object URIs: one canonical URI per object, containment by path components, refused paths."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from delegation.errors import GuardRefused
from delegation.storage.locations import (
    LOCAL,
    AmbiguousPath,
    ObjectLocation,
    Roots,
    UnsupportedLocation,
    canonical,
    parse,
    split,
)

KEYS = st.text(st.characters(exclude_characters="#?", exclude_categories=["Cs"]), min_size=1).filter(
    lambda key: ".." not in key.split("/")
)
COMPONENTS = st.text(st.characters(exclude_characters="#?/", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: text != ".."
)
BUCKETS = st.from_regex(r"[a-z0-9][a-z0-9.\-]{1,20}[a-z0-9]", fullmatch=True).filter(
    lambda bucket: not bucket.endswith("--table-s3")
)


@given(BUCKETS, KEYS, st.sampled_from(["s3", "s3a", "s3n", "S3"]))
@example("bucket", "a%2F b/./x//=&+..\x01", "s3a")
@example("bucket", "x--table-s3/y/", "s3n")
def test_every_s3_scheme_names_the_same_object_and_the_key_is_unchanged(bucket: str, key: str, scheme: str) -> None:
    path = f"{scheme}://{bucket}/{key}"
    assert parse(path) == ObjectLocation(bucket, key)
    assert canonical(path) == f"s3://{bucket}/{key}"
    assert split(canonical(path)) == (bucket, key)


@given(BUCKETS, st.text())
def test_a_path_is_canonical_or_refused(bucket: str, rest: str) -> None:
    path = f"s3://{bucket}/{rest}"
    try:
        found = canonical(path)
    except GuardRefused:
        assert not rest or "#" in rest or "?" in rest or ".." in rest.split("/") or not _is_text(rest)
    else:
        assert found == path
        assert canonical(found) == found


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(BUCKETS, st.lists(COMPONENTS, min_size=1, max_size=4), st.lists(COMPONENTS, min_size=1, max_size=3))
@example("bucket", ["."], ["."])
def test_containment_is_by_whole_components(bucket: str, root: list[str], rest: list[str]) -> None:
    assume(root[-1] + rest[0] != "..")
    location = f"s3a://{bucket}/{'/'.join(root)}"
    below = canonical(f"s3://{bucket}/{'/'.join([*root, *rest])}")
    beside = canonical(f"s3://{bucket}/{'/'.join(root)}{rest[0]}/x")
    for spelled in (location, location + "/"):
        assert Roots([spelled]).contains(below)
        assert not Roots([spelled]).contains(beside)
        assert not Roots([spelled]).contains(canonical(location))


@given(BUCKETS, st.lists(st.lists(COMPONENTS, min_size=1, max_size=3), min_size=1, max_size=5), KEYS)
def test_roots_contain_what_one_of_them_contains(bucket: str, roots: list[list[str]], key: str) -> None:
    locations = [f"s3://{bucket}/{'/'.join(parts)}" for parts in roots]
    path = canonical(f"s3://{bucket}/{key}")
    assert Roots(locations).contains(path) == any(Roots([location]).contains(path) for location in locations)
    nested = canonical(f"{locations[0]}/{key}")
    assert Roots(locations).contains(nested)


@pytest.mark.parametrize(
    "path",
    ["s3://bucket/a#b", "s3://bucket/a?b", "s3://bucket/a/../b", "s3://bucket/..", "s3:///key", "s3://bucket/",
     "s3://bucket", "s3://bu cket/key", "s3://user@bucket/key", "s3://bucket:80/key", "s3://bucket/\ud800"],
)  # fmt: skip
def test_ambiguous_paths_are_refused(path: str) -> None:
    with pytest.raises(AmbiguousPath) as refused:
        canonical(path)
    assert refused.value.code == "AMBIGUOUS_PATH"


@pytest.mark.parametrize(
    "path",
    ["gs://bucket/key", "hdfs://host/key", "file://host/tmp/x", "//tmp/x", "relative/x", "",
     "s3://63a8e430-6e0b-46f5--table-s3/data/x", "s3a://x--table-s3/data/x"],
)  # fmt: skip
def test_unsupported_storage_is_refused(path: str) -> None:
    with pytest.raises(UnsupportedLocation) as refused:
        canonical(path)
    assert refused.value.code == "UNSUPPORTED_LOCATION"


@pytest.mark.parametrize("path", ["file:///wh/t/a b", "file:/wh/t/a b", "FILE:///wh/t/a b", "/wh/t/a b"])
def test_local_files_have_one_canonical_uri(path: str) -> None:
    assert parse(path) == ObjectLocation(LOCAL, "wh/t/a b")
    assert canonical(path) == "file:///wh/t/a b"
    assert split(canonical(path)) == (LOCAL, "wh/t/a b")
    assert Roots(["file:/wh/t/"]).contains(canonical(path))
    assert not Roots(["s3://wh/t"]).overlaps(Roots(["file:///wh/t"]))


@pytest.mark.parametrize(
    "path",
    ["file:///a//b", "file:////a", "file:///a/./b", "file:///a/../b", "file:///a/", "file:///", "file:///a#b"],
)
def test_other_spellings_of_a_local_file_are_refused(path: str) -> None:
    with pytest.raises(AmbiguousPath):
        parse(path)


def test_a_bucket_is_a_root_and_overlap_is_symmetric() -> None:
    assert Roots(["s3://bucket"]).contains("s3://bucket/x")
    assert Roots(["s3://bucket/"]).overlaps(Roots(["s3a://bucket/wh/t"]))
    assert Roots(["s3://bucket/wh/t"]).overlaps(Roots(["s3://bucket/wh"]))
    assert not Roots(["s3://bucket/wh/t"]).overlaps(Roots(["s3://bucket/wh/t2"]))
    assert not Roots(["s3://bucket"]).overlaps(Roots(["s3://bucket2"]))
