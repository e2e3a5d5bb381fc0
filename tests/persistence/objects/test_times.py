"""What a process claims about time: its wall clock, bounded by the time of the database's answers."""

from hypothesis import given
from hypothesis import strategies as st

from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.objects.times import TOLERANCE, BoundedClock

TIMES = st.integers(0, 2**50)


@given(TIMES, TIMES)
def test_a_claim_is_the_wall_clock_or_at_the_bound(wall: int, database: int) -> None:
    claimed = BoundedClock(lambda: wall, lambda: database)()
    assert abs(claimed - database) <= TOLERANCE
    assert claimed == wall or abs(wall - database) > TOLERANCE


def test_before_the_first_answer_the_wall_clock_is_all_there_is() -> None:
    assert BoundedClock(lambda: 5, lambda: None)() == 5


def test_a_process_a_year_off_writes_objects_with_the_databases_time() -> None:
    year = 365 * 86_400 * 10**6
    now = 1_800_000_000 * 10**6
    for off in (-year, year):
        backend = MemoryBackend(now_us=lambda: now)
        process = PersistenceProcess(backend, now_ns=lambda o=off: (now + o) * 1_000)
        assert abs(process.store("r", "c").create_reference("main").created_at - now) <= TOLERANCE
