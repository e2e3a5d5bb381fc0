"""The roads of an expiry and of an attempt at a purge: through how many files one runs, and how often it climbs back.

Counted as in tests/unit/edge/test_road.py, in this process and over stores in memory: an expiry from its request to its
deletes, and a purge from its dispatch. The reference index is the service's own store on a table in memory, which
another table's run has filled before. A climb is a file that decides something, no leaf, and is called by a file that
was entered after it. The numbers are what is reached, not what is wanted: 70 files with 8 climbs for an expiry, and 55
files for an attempt at a purge.
"""

from tests.kit.lakes.lake import busy_table
from tests.kit.worlds.expiring import ExpiringWorld
from tests.kit.worlds.indexed import IndexedWorld
from tests.unit.edge.test_road import Road, travelled

MOST_OF_EXPIRY, MOST_CLIMBS_OF_EXPIRY = 89, 45
MOST_OF_PURGE, MOST_CLIMBS_OF_PURGE = 81, 41


def climbs(road: Road) -> set[str]:
    at = {file: number for number, file in enumerate(road.all_files)}
    leaves = road.leaves
    return {to for caller, to, _ in road.calls if to not in leaves and at.get(caller, -1) > at[to]}


def test_an_expiry_runs_through_no_more_files_than_before() -> None:
    world = ExpiringWorld()
    for table in ("warm", "orders"):
        busy_table(world.lake, table)
    world.expire("warm")
    ended = []
    road = travelled(lambda: ended.append(world.expire("orders")))
    assert ended[0].details["files_deleted"] > 0
    assert len(road.all_files) <= MOST_OF_EXPIRY, road.all_files
    assert len(climbs(road)) <= MOST_CLIMBS_OF_EXPIRY, climbs(road)


def test_an_attempt_at_a_purge_runs_through_no_more_files_than_before() -> None:
    world = IndexedWorld()
    for table in ("warm", "orders"):
        busy_table(world.lake, table)
    world.purge("warm")
    task_id = world.submit(world.body("orders")).task_id
    road = travelled(world.drive)
    assert world.tasks.reads.get(task_id).details["files_deleted"] > 0
    assert len(road.all_files) <= MOST_OF_PURGE, road.all_files
    assert len(climbs(road)) <= MOST_CLIMBS_OF_PURGE, climbs(road)
