"""Totals that are printed as a long run goes."""

from tests.kit.running import Running


def test_the_newest_totals_are_printed_at_intervals_and_at_the_end() -> None:
    printed: list[str] = []
    now = [0.0]
    running = Running(printed.append, every=5.0, clock=lambda: now[0])
    for number in range(12):
        now[0] = float(number)
        running.note(f"{number} points")
    assert printed == ["5 points", "10 points"]
    running.end()
    running.end()
    assert printed == ["5 points", "10 points", "11 points"]
