"""Comparisons with Iceberg's actions: rounds of all contenders in turns, medians of each, and our ratio to them."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence

from tests.bench.frame import Figures, load, median
from tests.bench.loads.big_table import BigTable
from tests.bench.loads.children import CONTENDERS, run
from tests.bench.servers.s3_server import S3Server
from tests.kit.printing import print_now

Rounds = dict[str, list[Figures]]
NAMES = {
    "ours": "ours, inline, one core, plan written",
    "action": "Iceberg's action, defaults (250 keys, 2 in flight)",
    "action tuned": "Iceberg's action, tuned (1,000 keys, 16 threads)",
}


def begin(memory: str) -> None:
    """Print what all contenders run on."""
    print_now(f"Spark local[2], driver memory {memory}, {os.cpu_count()} cores, load average {load()}")


def compete(
    table: BigTable,
    names: Sequence[str],
    rounds: int,
    *options: str,
    script: str = "purge",
    left: Callable[[Figures], str | None] | None = None,
) -> Rounds:
    """Run each contender once a round; raises SystemExit with what `left` says of the figures of one."""
    found: Rounds = defaultdict(list)
    place = CONTENDERS.with_name(f"{script}.py")
    with S3Server(table) as server:
        for number in range(rounds):
            for name in names:
                figures = run(name, server, table, *options, whole=left is None, script=place)
                found[name].append(figures)
                requests = ", ".join(f"{count:,} {method}" for method, count in sorted(server.requests().items()))
                times = f"{figures['seconds']:.1f} s, {figures['tree_cpu']:.0f} s of CPU, {figures['tree_mb']:,.0f} MB"
                print_now(f"  round {number + 1}, {name}: {times}; {requests}; load {load()}")
                if left is not None and (wrong := left(figures)):
                    raise SystemExit(f"{name} left {wrong}")
    return found


def report(what: str, found: Rounds) -> None:
    """Print a line for each contender below `what` was measured."""
    print_now(f"{what}, medians of {len(next(iter(found.values())))}:")
    for name, runs in found.items():
        line = f"  {NAMES[name]:52} {median(runs, 'seconds'):7.1f} s {median(runs, 'tree_mb'):8,.0f} MB"
        line += f" {median(runs, 'tree_cpu'):7.0f} s of CPU {median(runs, 'calls'):7,.0f} delete calls"
        print_now(line + ratio(found, name))


def ratio(found: Rounds, name: str) -> str:
    """Return how much faster ours is than a contender, and with how much of its memory."""
    if name == "ours" or "ours" not in found:
        return ""
    seconds, memory = (median(found["ours"], what) / median(found[name], what) for what in ("seconds", "tree_mb"))
    return f"   ours is {1 / seconds:.1f} times as fast, with {memory:.2f} of its memory"
