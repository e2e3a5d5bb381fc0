"""Upgrade and downgrade by one release, on recorded stores: each reads what the other wrote, or leaves it alone."""

from collections import defaultdict
from typing import Any

import cbor2
import pytest

from polaris_persistence.catalogs.process import OWN_TYPES
from polaris_persistence.index.stripes import STRIPES
from tests.persistence.releases import last_release
from tests.persistence.releases.record import GRACE, RecordedRelease, record_this, recorded

ROOMS = {"realm": {"space"}}
"""The fields that this release added to types of the last one, which keeps them when it writes an object back."""
NEW_TYPES = {"maintenance-keys", "maintenance-marks"}
"""The types that this release added; the last one never deletes them, and refuses to sweep if a head names one."""
RECORDED_ELSEWHERE = {"iceberg-pack", "waiting-change", "combined-outcomes"}
"""New types too: packs are recorded by record_packed; a change waits for seconds, and only unread objects remain."""
ONLY_ON_REQUEST = {"location-owner", "commit-names"}
"""Types that no reference has unless its callers ask for claims or a feed; the last release carries them unread, as any
type that it does not know."""


def values(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [(row[2], cbor2.loads(bytes.fromhex(row[4]))) for row in recorded(name)["objects"]]


def shapes(objects: list[list[Any]]) -> dict[str, set[str]]:
    """The fields of each type, those of nested maps included."""
    found: dict[str, set[str]] = defaultdict(set)

    def walk(type_: str, value: Any, path: str) -> None:
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            for name, inner in value.items():
                found[type_].add(f"{path}{name}")
                if path.count(".") < 3 and name not in {"properties", "fields", "logs", "value"}:
                    walk(type_, inner, f"{path}{name}.")

    for row in objects:
        walk(row[2], cbor2.loads(bytes.fromhex(row[4])), "")
    return dict(found)


@pytest.mark.parametrize("name", ["last_release", "after_downgrade"])
def test_this_release_works_on_a_store_that_the_last_one_left(name: str) -> None:
    store = recorded(name)
    site = RecordedRelease(store)
    assert site.content("acme", "sales") == store["sales"]
    for _ in range(3):
        while not site.maintain().complete:
            pass
        site.clock.advance(GRACE + 10)
        assert site.content("acme", "sales") == store["sales"]
    site.put(site.realms.open("acme", "sales"), "new", "s3://new")
    assert site.content("acme", "sales") == {**store["sales"], "new": "s3://new"}
    # What the last release's stopped run left is unneeded, and so are all heads but the recent ones.
    stored = [key for key in site.backend._objects if key.type in {"maintenance-filter", "catalog-head"}]
    assert len([key for key in stored if key.type == "maintenance-filter"]) == 0
    assert len(stored) <= 20 * len(list(site.backend.references()))


def test_the_recorded_store_of_this_release_is_what_it_writes() -> None:
    """If this fails, a stored field was added: name its room in docs/persistence.md and record the stores again."""
    made = record_this(recorded("last_release"))
    assert shapes(made["objects"]) == shapes(recorded("this_release")["objects"])
    assert made["contents"] == recorded("this_release")["contents"]


def test_the_last_release_decodes_what_this_one_wrote_and_keeps_what_it_does_not_know() -> None:
    seen = set()
    for type_, stored in values("this_release"):
        seen.add(type_)
        if type_ in NEW_TYPES:
            assert type_ not in last_release.MODELS
            continue
        decoded = last_release.MODELS[type_].model_validate(stored)
        assert set(decoded.model_extra or {}) <= ROOMS.get(type_, set())
        written_back = cbor2.loads(cbor2.dumps(decoded.model_dump()))
        assert {name: written_back[name] for name in stored} == stored
    assert seen >= {"catalog-head", "realm", "catalog", "coordinated-task", "node", "iceberg", STRIPES.name, *NEW_TYPES}


def test_the_last_release_leaves_alone_what_it_cannot_use() -> None:
    realms = [stored for type_, stored in values("this_release") if type_ == "realm"]
    assert any(one.get("space") for one in realms)
    assert all(bool(one.get("space")) != (one["status"] in last_release.STATUSES) for one in realms)
    tasks = [stored for type_, stored in values("this_release") if type_ == "coordinated-task"]
    assert tasks
    assert all(last_release.RESUMES not in one["state"] for one in tasks)
    assert all(isinstance(one["state"].get("expected", 0), int) for one in tasks)


def test_every_type_of_this_release_has_a_room_or_is_one_of_the_last() -> None:
    new = {one.name for one in OWN_TYPES} - set(last_release.MODELS)
    assert new == NEW_TYPES | RECORDED_ELSEWHERE | ONLY_ON_REQUEST


def test_what_the_last_release_did_on_a_store_of_this_one_was_recorded() -> None:
    """It committed to the realms it knows, swept them, and left the others and this release's chunks as they were."""
    before, after = (
        {tuple(row[:4]): row[4] for row in recorded(name)["objects"]} for name in ("this_release", "after_downgrade")
    )
    chunks = {key for key in before if key[2] in NEW_TYPES}
    assert chunks
    assert {key: after.get(key) for key in chunks} == {key: before[key] for key in chunks}
    assert recorded("after_downgrade")["sales"]["after"] == "s3://after"
