"""What processes said, held against the commit log: each function returns the contradictions, none if all is well.

Together they are linearizability of a register that is only added to: the log is the order, and it must agree with
what each caller was answered and with the time of its call (Herlihy and Wing, Linearizability, 1990).
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Said = Sequence[dict[str, Any]]
Log = Sequence[Any]
"""Loaded heads of the reference, the oldest first."""
COUNTERS = ("n0", "n1", "n2")
PLACES = 20
"""How many of its last values each counter has a name for, so that the index has many names that change."""


def place_of(counter: str, number: int) -> str:
    """Return the name of one value of a counter, which the value PLACES later takes over."""
    return f"{counter}/{number % PLACES:02}"


def names_after(counted: Mapping[str, int]) -> dict[str, int]:
    """Return all names of a head and their numbers, after so many commits to each counter."""
    past = {
        place_of(counter, number): number
        for counter, last in counted.items()
        for number in range(max(1, last - PLACES + 1), last + 1)
    }
    return {**counted, **past}


def operations(log: Log) -> list[tuple[str, int]]:
    return [(name, one.key.id) for one in log for name in one.value.operations]


def contradictions(said: Said, log: Log) -> list[str]:
    """Return what is lost, doubled, torn or misordered."""
    checks: tuple[Callable[[Said, Log], Iterator[str]], ...] = (
        _of_the_log,
        _lost_doubled_or_invented,
        _not_seen,
        _misordered,
        _reads,
    )
    return [found for check in checks for found in check(said, log)]


def _of_the_log(said: Said, log: Log) -> Iterator[str]:
    del said
    seqs = [one.value.seq for one in log]
    if seqs != list(range(1, len(log) + 1)):
        yield f"the log's numbers are not 1 to {len(log)}"
    for older, newer in itertools.pairwise(log):
        if older.key.id not in newer.value.tail:
            yield f"commit {newer.key.id} does not name commit {older.key.id}, which is before it"


def _lost_doubled_or_invented(said: Said, log: Log) -> Iterator[str]:
    logged = operations(log)
    yield from (
        f"{name} is in the log twice" for name, count in Counter(name for name, _ in logged).items() if count > 1
    )
    begun = {one["operation"] for one in said if one["what"] == "begin"}
    yield from (f"{name} is in the log, and nobody began it" for name, _ in logged if name not in begun)
    stored = set(logged)
    for one in said:
        if one["what"] == "done" and (one["operation"], one["commit"]) not in stored:
            yield f"{one['operation']} was acknowledged as commit {one['commit']} and is not in the log"
    names = {name for name, _ in logged}
    for one in said:
        if one["what"] == "failed" and one["operation"] in names:
            yield f"{one['operation']} was answered with {one['error']} and is in the log"


def _not_seen(said: Said, log: Log) -> Iterator[str]:
    results = {one["operation"]: one["result"] for one in said if one["what"] == "done"}
    before: dict[str, int] = defaultdict(int)
    for name, _ in operations(log):
        counter = name.rsplit(".", 1)[1]
        before[counter] += 1
        if results.get(name, before[counter]) != before[counter]:
            yield f"{name} was answered {results[name]}, and the log has {before[counter]}"


def _misordered(said: Said, log: Log) -> Iterator[str]:
    begun = {one["operation"]: one["at"] for one in said if one["what"] == "begin"}
    done = {one["operation"]: one["at"] for one in said if one["what"] == "done"}
    latest = 0.0
    for name, _ in operations(log):
        if done.get(name, float("inf")) < latest:
            yield f"{name} had ended before one that the log has earlier began"
        latest = max(latest, begun.get(name, 0.0))


def _reads(said: Said, log: Log) -> Iterator[str]:
    """A read must show a whole head, none older than what was acknowledged before it began, none from the future."""
    counted: Counter[str] = Counter()
    at: dict[int, tuple[int, dict[str, int]]] = {}
    for one in log:
        counted.update(name.rsplit(".", 1)[1] for name in one.value.operations)
        at[one.key.id] = one.value.seq, names_after(counted)
    begun = {one["operation"]: one["at"] for one in said if one["what"] == "begin"}
    first = {
        one.key.id: min(begun.get(name, 0.0) for name in one.value.operations) for one in log if one.value.operations
    }
    seq_of = {name: one.value.seq for one in log for name in one.value.operations}
    done = sorted((one["at"], seq_of.get(one["operation"], 0)) for one in said if one["what"] == "done")
    events = [*done, (float("inf"), 0)]
    acknowledged, next_ = 0, 0
    for read in sorted((one for one in said if one["what"] == "read"), key=lambda one: float(one["began"])):
        while events[next_][0] < read["began"]:
            acknowledged, next_ = max(acknowledged, events[next_][1]), next_ + 1
        if read["commit"] not in at:
            yield f"a read showed commit {read['commit']}, which is not in the log"
        elif at[read["commit"]] != (read["seq"], read["numbers"]):
            yield f"a read of commit {read['commit']} showed {read['numbers']}, and the log has {at[read['commit']]}"
        elif read["seq"] < acknowledged:
            yield f"a read showed number {read['seq']} after {acknowledged} was acknowledged"
        elif first.get(read["commit"], 0.0) > read["at"]:
            yield f"a read showed commit {read['commit']} before it was begun"


class Acknowledged(NamedTuple):
    """How many commits were acknowledged, of those begun outside of outages of their process."""

    done: int
    begun: int

    @property
    def share(self) -> float:
        return self.done / self.begun if self.begun else 0.0


class Outage(NamedTuple):
    """A time in which a process was suspended, in seconds of the monotonic clock."""

    process: int
    since: float
    until: float


def acknowledged(said: Said, outages: Sequence[Outage] = ()) -> Acknowledged:
    """Count the commits that were answered, without those during which their process was suspended.

    A commit that was never answered was begun by a process that was killed.
    """
    begun = {one["operation"]: one["at"] for one in said if one["what"] == "begin"}
    of_process: dict[int, list[Outage]] = defaultdict(list)
    for outage in outages:
        of_process[outage.process].append(outage)
    counted: Counter[str] = Counter()
    for one in said:
        if one["what"] not in {"done", "unknown", "failed"}:
            continue
        number, since = int(one["operation"].split(".", 1)[0]), begun[one["operation"]]
        if not any(since < outage.until and outage.since < one["at"] for outage in of_process[number]):
            counted[one["what"]] += 1
    return Acknowledged(counted["done"], counted.total())
