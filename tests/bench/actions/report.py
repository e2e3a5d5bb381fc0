"""What the comparisons with Iceberg's actions print: medians of each contender, and our ratio to them."""

from tests.bench.bench_spark import median
from tests.kit.printing import print_now

Rounds = dict[str, list[dict[str, float]]]
NAMES = {
    "ours": "ours, inline, one core, plan written",
    "action": "Iceberg's action, defaults (250 keys, 2 in flight)",
    "action tuned": "Iceberg's action, tuned (1,000 keys, 16 threads)",
}


def report(what: str, found: Rounds) -> None:
    """Print a line for each contender below `what` was measured."""
    print_now(f"{what}, medians of {len(next(iter(found.values())))}:")
    for name, runs in found.items():
        line = f"  {NAMES[name]:52} {median(runs, 'seconds'):7.1f} s {median(runs, 'tree_mb'):8,.0f} MB"
        line += f" {median(runs, 'tree_cpu'):7.0f} s of CPU {median(runs, 'calls'):7,.0f} delete calls"
        if name != "ours" and "ours" in found:
            seconds, memory = (median(found["ours"], what) / median(runs, what) for what in ("seconds", "tree_mb"))
            line += f"   ours is {1 / seconds:.1f} times as fast, with {memory:.2f} of its memory"
        print_now(line)
