"""Random histories of a table whose orphan files are swept (`make orphans-histories`); prints totals as they go.

Exits with 1 if a file that a table needs was deleted: the seed and the step are printed, and `--seed` with
`--histories 1` plays it again. Blocks of histories run in processes of their own with one of several PYTHONHASHSEEDs,
and each writes a line to the file `--out`; a run that was interrupted continues where that ends. With `--mutation` a
safeguard is left out: it exits with 0 at the first history that notices, with 1 if none does.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from tests.faults.orphans.history import play
from tests.faults.orphans.mutations import MUTATIONS

BLOCK: Final = 100
HASH_SEEDS: Final = ("0", "1", "2", "3", "4")
_COUNTED: Final = ("histories", "swept", "expired", "purged", "foreign", "landed", "bad")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first history")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the file of the blocks that are done, which a later run continues")
    parser.add_argument("--mutation", default="none", choices=tuple(MUTATIONS))
    parser.add_argument("--block", action="store_true", help="play in this process, and print a line of JSON")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.seed, chosen.seed + chosen.histories)
    if chosen.mutation != "none":
        caught = first_bad(chosen.mutation, seeds)
        sys.stdout.write("not caught\n" if caught is None else f"caught at seed {caught}\n")
        return 1 if caught is None else 0
    if chosen.block:
        sys.stdout.write(json.dumps(played(seeds)) + "\n")
        return 0
    return _in_blocks(seeds, chosen.processes, chosen.out)


def played(seeds: Sequence[int]) -> dict[str, Any]:
    """Play histories; return what they came to, and the messages of those that went wrong."""
    total: Counter[str] = Counter()
    messages: list[str] = []
    for seed in seeds:
        total["histories"] += 1
        try:
            history = play(seed)
        except AssertionError as error:
            total["bad"] += 1
            messages.append(str(error))
        else:
            total.update(swept=history.swept, expired=history.expired, purged=history.purged, foreign=history.foreign)
            total["landed"] += history.landed
    return {"first": seeds[0], "hash_seed": os.environ.get("PYTHONHASHSEED", ""), "messages": messages, **total}


def first_bad(mutation: str, seeds: Sequence[int]) -> int | None:
    """Return the first of these seeds whose history goes wrong without a safeguard, None if all go well."""
    with MUTATIONS[mutation]():
        return next((seed for seed in seeds if played([seed]).get("bad")), None)


def _in_blocks(seeds: range, processes: int, out: Path | None) -> int:
    began = time.monotonic()
    done = _read(out)
    firsts = [first for first in seeds[::BLOCK] if first not in done]
    total: Counter[str] = Counter()
    for first in seeds[::BLOCK]:
        if first in done:
            _add(total, done[first])
    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(_block, first, min(BLOCK, seeds[-1] - first + 1)) for first in firsts]
        for future in as_completed(futures):
            line = future.result()
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            _add(total, line)
            _show(total, line, time.monotonic() - began)
    _show(total, {}, time.monotonic() - began)
    return 1 if total["bad"] else 0


def _read(out: Path | None) -> dict[int, dict[str, Any]]:
    if out is None or not out.exists():
        return {}
    lines = (json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())
    return {line["first"]: line for line in lines}


def _block(first: int, histories: int) -> dict[str, Any]:
    hash_seed = HASH_SEEDS[(first // BLOCK) % len(HASH_SEEDS)]
    command = [sys.executable, "-m", "tests.faults.orphans.run", "--block", "--seed", str(first)]
    command += ["--histories", str(histories)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _add(total: Counter[str], line: dict[str, Any]) -> None:
    total.update({name: line.get(name, 0) for name in _COUNTED})
    total["hash seeds"] |= 1 << int(line["hash_seed"] or 0)


def _show(total: Counter[str], line: dict[str, Any], seconds: float) -> None:
    for message in line.get("messages", ()):
        sys.stdout.write(f"BAD {message} (PYTHONHASHSEED={line['hash_seed']})\n")
    sys.stdout.write(
        f"{total['histories']} histories with {total['hash seeds'].bit_count()} hash seeds: sweeps deleted "
        f"{total['swept']} files, expiries {total['expired']}, purges {total['purged']}; "
        f"{total['foreign']} sweeps kept files of unlisted tables, {total['landed']} commits in flight landed; "
        f"{total['bad']} histories with a live file deleted; {seconds:.0f} s\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(main(sys.argv[1:]))
