"""An index compared with a sorted dict stored as JSON: bytes per entry, a lookup, a page, the writes of a commit.

    PYTHONPATH=functions:. python tests/bench/bench_index.py [--entries N …] [--commits N]

Keys are `ns{000–099}.table_{000000…}` in two layouts, table n in namespace n mod 100 ("spread") and in n div (N/100)
("runs"), with random ids of 63 bits. Measured for each size and layout: the index as one segment; a lookup of a random
name and a page of a thousand names in a loaded index with decoded stripes; a first lookup from bytes; the bytes and
write units (rows rounded up to KiB) of a commit that changes one random table, in a head of 250 further bytes. The
plain form writes the whole map in every commit. Times are CPU times, medians of five.
"""

import argparse
import itertools
import json
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable

from polaris_persistence.backends.base import ObjectKey
from polaris_persistence.index.format import encode_segment
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES, IndexStripe
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from tests.kit.printing import print_now

HEAD_BYTES = 250
ROW_BYTES = 90
PAGE = 1_000
LOOKUPS = 20_000


class Written:
    """Stripes in memory, as in an object cache."""

    def __init__(self) -> None:
        self.objects: dict[int, IndexStripe] = {}
        self.bytes: list[int] = []
        self._ids = itertools.count(1)

    def write(self, stripe: IndexStripe) -> ObjectRef:
        """Keep a new stripe."""
        ref = ObjectRef(STRIPES.name, next(self._ids))
        self.objects[ref.id] = stripe
        self.bytes.append(len(stripe.data))
        return ref

    def fetch(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return the stripes, each decoded at its first use."""
        return [Loaded(ObjectKey("", "", ref.type, ref.id), self.objects[ref.id], 0, 0) for ref in refs]

    def forget_decoded(self) -> None:
        """Drop decoded stripes, as if all had just been read from the store."""
        self.objects = {number: IndexStripe(data=stripe.data) for number, stripe in self.objects.items()}


def main() -> None:
    """Print the figures for every size and layout."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--entries", type=int, nargs="+", default=[1_000, 100_000])
    options.add_argument("--commits", type=int, default=2_000)
    given = options.parse_args()
    for count in given.entries:
        for layout in ("spread", "runs"):
            measure(count, layout, given.commits)


def measure(count: int, layout: str, commits: int) -> None:
    """Print the figures for one size and layout."""
    chance = random.Random(count)
    per_namespace = max(1, count // 100)
    names = [(f"ns{(n % 100 if layout == 'spread' else n // per_namespace):03}", f"table_{n:06}") for n in range(count)]
    ids = [chance.getrandbits(63) for _ in names]
    pairs = sorted((IndexKey.of(*name), ObjectRef("table", id_)) for name, id_ in zip(names, ids, strict=True))
    plain = {".".join(name): id_ for name, id_ in sorted(zip(names, ids, strict=True))}
    stripes = Written()
    embedded = b""
    index = Index.load(embedded, stripes.fetch)
    for key, ref in pairs:
        index.put(key, ref)
    embedded = index.finish(IndexPolicy(), stripes.write).embedded

    print_now(f"{count:,} entries, {layout}: {len(stripes.objects)} stripes")
    ratio("bytes per entry", len(encode_segment(pairs)) / count, len(as_json(plain)) / count, "JSON")

    wanted = [pairs[chance.randrange(count)][0] for _ in range(LOOKUPS)]
    loaded = Index.load(embedded, stripes.fetch)
    plain_keys = sorted(plain)
    plain_wanted = [".".join(key.elements()) for key in wanted]
    ratio(
        "lookup, µs",
        cpu(lambda: [loaded.get(key) for key in wanted]) / LOOKUPS * 1e6,
        cpu(lambda: [plain[key] for key in plain_wanted]) / LOOKUPS * 1e6,
        "dict",
    )
    page_start = len(pairs) // 3
    start = pairs[page_start][0]
    plain_start = ".".join(start.elements())

    def plain_page() -> list[tuple[str, int]]:
        at = bisect_left(plain_keys, plain_start)
        return [(key, plain[key]) for key in plain_keys[at : at + PAGE]]

    ratio(
        f"list {PAGE:,} from the middle, ms",
        cpu(lambda: list(itertools.islice(loaded.items(start), PAGE))) * 1e3,
        cpu(plain_page) * 1e3,
        "sorted list",
    )

    def first_lookup() -> object:
        stripes.forget_decoded()
        return Index.load(embedded, stripes.fetch).get(start)

    data = as_json(plain)
    ratio(
        "first lookup from bytes, ms",
        cpu(first_lookup) * 1e3,
        cpu(lambda: json.loads(data)[plain_start]) * 1e3,
        "JSON",
    )
    change(count, pairs, plain, embedded, stripes, commits)


def change(
    count: int,
    pairs: list[tuple[IndexKey, ObjectRef]],
    plain: dict[str, int],
    embedded: bytes,
    stripes: Written,
    commits: int,
) -> None:
    """Make commits that each change one random table, and print their cost."""
    chance = random.Random(1)
    heads: list[int] = []
    units: list[int] = []
    stripes.bytes.clear()
    began = time.process_time()
    for _ in range(commits):
        index = Index.load(embedded, stripes.fetch)
        key = pairs[chance.randrange(count)][0]
        index.get(key)
        index.put(key, ObjectRef("table", chance.getrandbits(63)))
        before = len(stripes.bytes)
        embedded = index.finish(IndexPolicy(), stripes.write).embedded
        rows = [len(embedded) + HEAD_BYTES, *(size + ROW_BYTES for size in stripes.bytes[before:])]
        heads.append(len(embedded))
        units.append(sum(-(-size // 1_024) for size in rows))
    took = (time.process_time() - began) / commits
    whole = len(as_json(plain))
    ratio("bytes written per commit", (sum(heads) + sum(stripes.bytes)) / commits, whole, "JSON")
    ratio("write units per commit, head and stripes", statistics.mean(units), -(-whole // 1_024), "JSON")
    print_now(f"  largest commit {max(units)} write units; {took * 1e3:.2f} ms of CPU per commit")
    print_now(
        f"  with the table's own object and the reference: {statistics.mean(units) + 2:.2f} write units per commit"
    )


def as_json(plain: dict[str, int]) -> bytes:
    """Return the plain form."""
    return json.dumps(plain, separators=(",", ":")).encode()


def cpu(work: Callable[[], object]) -> float:
    """Return the median CPU seconds of five runs."""
    work()
    took = []
    for _ in range(5):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return statistics.median(took)


def ratio(what: str, ours: float, plain: float, name: str) -> None:
    """Print a figure and that of the plain form."""
    print_now(f"  {what:42} {ours:12,.3f}   {name} {plain:14,.3f}   ratio {ours / plain:10.4f}")


if __name__ == "__main__":
    main()
