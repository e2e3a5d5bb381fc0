"""What commits and loads cost in a catalog of many tables, counted as `make bench BENCH=persistence` counts."""

from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.catalogs.realms import MAIN
from polaris_persistence.commits.directories import Directory
from tests.bench.bench_commits import change_of, key_of, loading
from tests.bench.bench_persistence import TYPES, CountingStore, directory
from tests.persistence.builders import Entity

TABLES = 20_000
COMMITS = 150


def test_commits_and_loads_cost_what_the_issue_allows() -> None:
    """Issue 32, line 12: 8 write units a warm commit, 6 trips a cold load with open, 9 a cold commit."""
    backend = CountingStore()
    setup = PersistenceProcess(backend, types=TYPES, overlaps_lease=False)
    setup.realms().create("acme", {})
    warm = directory(setup.realms().create_catalog("acme", "sales", {}))._committer
    warm.commit(loading(range(TABLES), setup.store("acme", MAIN).new_id))
    numbers = [number * 7_919 % TABLES for number in range(2 * COMMITS)]
    for number in numbers[COMMITS:]:
        warm.commit(change_of(number))

    backend.reset()
    for number in numbers[:COMMITS]:
        warm.commit(change_of(number))
    assert backend.writes <= 8 * COMMITS
    assert backend.trips <= 3 * COMMITS

    backend.reset()
    names = cold(backend)
    head = names._committer.head()
    assert head is not None
    ref = head.value.working_index(names._store.fetch_many).get(key_of(numbers[0]))
    assert ref is not None
    assert names._store.fetch(ref, Entity) is not None
    assert backend.trips <= 6

    backend.reset()
    cold(backend)._committer.commit(change_of(numbers[0]))
    assert backend.trips <= 9
    assert backend.writes <= 31


def cold(backend: CountingStore) -> Directory[Entity]:
    """Return a catalog as a new process opens it; the lease of its node id is among the trips."""
    process = PersistenceProcess(backend, types=TYPES, overlaps_lease=False)
    return directory(process.realms().open("acme", "sales"))
