from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest

from delegation.storage.base import BatchResult, FileTooLarge, ObjectNotFound, ObjectStore, PlanStore
from delegation.storage.locations import LOCAL, ObjectLocation

UNUSUAL_KEYS: Final = [
    "a b",
    "a+b",
    "a%2Fb",
    "a%b",
    "a=b&c;d",
    "<tag>&amp;",
    "'quoted\"",
    "ünï/ço dé",
    "trail/",
    "a//b",
    "/leading",
    "new\nline",
    "tab\tand\rreturn",
    "control\x01\x7f",
    "astral😀",
    "x" * 900,
]


@dataclass
class StoreUnderTest:
    """A store under test, and direct access to its objects; `lake` is the bucket, `below` the keys' prefix. `holds`
    returns whether the storage can have an object with a key. `versions` is a versioned bucket, whose versioning
    `suspend` sets. After `deny_versioning` no bucket's versioning may be read, as with vended credentials."""

    store: ObjectStore
    plans: PlanStore
    put: Callable[[str, str, bytes], None]
    keys: Callable[[str], set[str]]
    lake: str = "lake"
    below: str = ""
    holds: Callable[[str], bool] = lambda _key: True
    versions: str | None = "versions"
    suspend: Callable[[str], object] = lambda _status: None
    deny_versioning: Callable[[], object] = lambda: None

    def at(self, key: str) -> ObjectLocation:
        return ObjectLocation(self.lake, self.below + key)

    def fill(self, *keys: str) -> None:
        for key in keys:
            self.put(self.lake, self.below + key, b"12345")

    def left(self) -> set[str]:
        return {key.removeprefix(self.below) for key in self.keys(self.lake)}

    def delete(self, *keys: str) -> BatchResult:
        result = self.store.delete(self.lake, [self.below + key for key in keys])
        return replace(result, deleted=tuple(key.removeprefix(self.below) for key in result.deleted))


class ObjectStoreContract:
    """The contract as tests of one store. A subclass overrides the fixture `tested`."""

    @pytest.fixture
    def tested(self) -> StoreUnderTest:
        """Return new, empty stores and direct access to their objects."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `tested`")

    def test_existing_objects_are_read_and_absent_ones_reported(self, tested: StoreUnderTest) -> None:
        tested.fill("a")
        assert tested.store.read(tested.at("a"), limit=5) == b"12345"
        assert tested.store.exists(tested.at("a"))
        for absent in ("b", "a/b", "a/"):
            assert not tested.store.exists(tested.at(absent))
            with pytest.raises(ObjectNotFound):
                tested.store.read(tested.at(absent), limit=5)
        with pytest.raises(FileTooLarge):
            tested.store.read(tested.at("a"), limit=4)

    def test_delete_confirms_every_key_absent_ones_too(self, tested: StoreUnderTest) -> None:
        tested.fill("a", "kept")
        result = tested.delete("a", "absent", "kept/below")
        assert (set(result.deleted), result.failed, result.delete_markers) == ({"a", "absent", "kept/below"}, (), False)
        assert tested.left() == {"kept"}

    def test_unusual_keys_are_deleted_exactly(self, tested: StoreUnderTest) -> None:
        tested.fill(*(key for key in UNUSUAL_KEYS if tested.holds(key)))
        decoys = {"a/b", "b", "trail", "new", "leading", "x" * 200, "a%252Fb"}
        tested.fill(*decoys)
        result = tested.delete(*UNUSUAL_KEYS)
        assert set(result.deleted) == set(UNUSUAL_KEYS)
        assert result.failed == ()
        assert tested.left() == decoys

    def test_a_thousand_keys_in_one_call(self, tested: StoreUnderTest) -> None:
        keys = [f"k{number}" for number in range(1000)]
        tested.fill("k7")
        assert set(tested.delete(*keys).deleted) == set(keys)
        assert tested.left() == set()

    def test_versioned_buckets_are_recognized(self, tested: StoreUnderTest) -> None:
        assert tested.store.versioned(tested.lake) is False
        if tested.versions is not None:
            assert tested.store.versioned(tested.versions) is True
            tested.put(tested.versions, "a", b"")
            assert tested.store.delete(tested.versions, ["a"]).delete_markers

    @pytest.mark.parametrize("status", ["Enabled", "Suspended"])
    def test_versions_are_recognized_by_an_object_where_the_bucket_may_not_be_asked(
        self, tested: StoreUnderTest, status: str
    ) -> None:
        tested.fill("a")
        if tested.versions is not None:
            tested.put(tested.versions, "a", b"12345")
            tested.suspend(status)
        tested.deny_versioning()
        assert not tested.store.versioned(tested.lake, seen=tested.at("a"))
        assert not tested.store.versioned(tested.lake, seen=tested.at("absent"))
        if tested.versions is not None:
            assert tested.store.versioned(tested.versions) is None
            assert tested.store.versioned(tested.versions, seen=ObjectLocation(tested.versions, "absent")) is None
            assert tested.store.versioned(tested.versions, seen=ObjectLocation(tested.versions, "a")) is True

    def test_a_probe_leaves_nothing_behind(self, tested: StoreUnderTest) -> None:
        tested.fill("t/a")
        for prefix in ("t", "t/not/there"):
            assert tested.store.probe_delete(tested.at(prefix).uri + "/") is None
        assert tested.left() == {"t/a"}

    def test_plans_are_stored_and_listed_and_absent_ones_reported(self, tested: StoreUnderTest) -> None:
        for key in ("t/1/b", "t/1/a", "t/10/a", "u/1/a"):
            tested.plans.put(key, key.encode())
        assert tested.plans.get("t/1/a") == b"t/1/a"
        assert list(tested.plans.keys("t/1/")) == ["t/1/a", "t/1/b"]
        assert list(tested.plans.keys("nothing")) == []
        with pytest.raises(ObjectNotFound):
            tested.plans.get("t/1/c")
        tested.plans.put("t/1/a", b"again")
        assert tested.plans.get("t/1/a") == b"again"

    def test_only_keys_that_were_absent_are_reported_as_absent(self, tested: StoreUnderTest) -> None:
        """S3 confirms the delete of an absent key like any other, so a store need not know."""
        tested.fill("a", "b")
        result = tested.delete("a", "no-such", "b")
        absent = {key.removeprefix(tested.below) for key in result.absent}
        assert result.deleted == ("a", "no-such", "b")
        assert absent == ({"no-such"} if tested.lake == LOCAL else set())
