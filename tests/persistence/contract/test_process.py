"""The life of a realm on every backend: commits, objects of several rows, a sweep, a reset, a purge."""

import pytest

from polaris_persistence.backends.base import PART_BYTES, Backend
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.catalogs.realms import MAIN, RealmStatus
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityHead, seal
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.maintenance.recovery import recent_heads, reset
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.testing.rows import all_rows
from tests.contract.where import LOCAL, MOTO
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import Entity
from tests.persistence.worlds import naming, process_on, read_entities

SMALL = IndexPolicy(min_embedded=64, max_embedded=256, stripe=256)


@pytest.mark.parametrize("backend", ["memory", MOTO, LOCAL], indirect=True)
def test_a_realm_from_its_creation_to_its_purge(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MicrosecondClock()

    def start() -> PersistenceProcess:
        return process_on(backend, clock)

    def content() -> dict[str, str]:
        found = read_entities(start().realms().open("acme", "sales"))
        return {name: value.name for name, value in found.items() if value}

    process = start()
    realms = process.realms()
    realms.create("acme", {"tier": "gold"})
    store = realms.create_catalog("acme", "sales", {})
    committer = Committer(store, MAIN, EntityHead, seal=seal(SMALL))
    huge = "x" * (2 * PART_BYTES + 7)
    for number in range(40):
        committer.commit(naming(f"t{number:02}", f"v{number}"))
    committer.commit(naming("huge", huge))
    expected = {**{f"t{number:02}": f"v{number}" for number in range(40)}, "huge": huge}
    assert content() == expected
    assert [one.value.seq for one in committer.log()] == list(range(41, 0, -1))

    # Of three rows, like the one that is kept.
    store.write([Entity(name=huge)])
    # The store's clock, moved by hand: the database's own would need a wait of the grace period.
    monkeypatch.setattr(backend, "time", clock.now_us)
    policy = SweepPolicy(grace=100, page=25, segments=2, chunk=30)
    assert start().maintenance(policy).run().deleted == 0
    clock.advance(10_000)
    report = start().maintenance(policy).run()
    assert report.deleted > 20
    assert content() == expected
    rows = all_rows(backend, limit=1_000)
    assert sum(row.parts == 3 for row in rows) == (1 if isinstance(backend, MemoryBackend) else 3)

    reference = store.current_reference(MAIN)
    heads = list(recent_heads(start().store(store.realm, store.catalog), reference))
    assert [one.problem for one in heads] == [None] * 20
    reset(store, MAIN, heads[1].id)
    del expected["huge"]
    assert content() == expected
    committer.commit(naming("after", "reset"))
    assert content() == {**expected, "after": "reset"}

    realms.set_status("acme", RealmStatus.INACTIVE)
    assert start().realms().purge("acme").references == 2
    assert all_rows(backend, realm=store.realm, limit=1_000) == []
    assert realms.page(limit=5).entities == ()
