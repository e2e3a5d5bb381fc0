"""`make release-check`: run the long targets, print a table, and fail if one failed.

python -m tests.release_check [NAME ...]     all, or some; writes their records into bench/long.json
python -m tests.release_check --due          those whose records are oldest, as .ci/run does; writes nothing
python -m tests.release_check --record LOG   take the records that a log of .ci/run has into bench/long.json
python -m tests.release_check --persistence  0 if the persistence's tests passed with the contents that are committed
python -m tests.release_check --passed       print the record that they did
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench.records.results import commit
from tests.kit.printing import print_now
from tests.paths import ROOT
from tests.release_check import persistence
from tests.release_check.targets import LANDINGS, TARGETS, LongTarget, due

PLACE: Final = ROOT / "bench" / "long.json"
LOGS: Final = ROOT / "build" / "release-check"
RECORD: Final = "record: "
"""Before each record in a log: one line, which the next landing commits."""
OK, FAILED, TIMED_OUT, SKIPPED = "ok", "failed", "timed out", "skipped"
_MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
_TAIL: Final = 40
_GRACE: Final = 30.0

Record = dict[str, Any]


def run(target: LongTarget, at: str, seconds: float | None = None) -> Record:
    """Run a target with all its processes below its bound; return its record."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{target.name}.log"
    # What `make release-check` was given is not meant for the target.
    own = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", *re.findall(r"^(\w+) \?=", _MAKEFILE, re.MULTILINE)}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    began, now = time.monotonic(), datetime.now(UTC)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "--no-print-directory", *target.words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            result = FAILED if process.wait(target.minutes * 60 if seconds is None else seconds) else OK
        except subprocess.TimeoutExpired:
            result = TIMED_OUT
        finally:
            _end(process)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if result == OK and any(line.startswith("skipped: ") for line in lines):
        result = SKIPPED
    if result != OK:
        print_now("\n".join([f"--- {target.name} {result}; the end of {log.relative_to(ROOT)}:", *lines[-_TAIL:]]))
    return {
        "target": target.name,
        "result": result,
        "seconds": round(time.monotonic() - began),
        "commit": at,
        "at": now.isoformat(timespec="seconds"),
    }


def tried(target: LongTarget, at: str, run: Callable[[LongTarget, str], Record] = run) -> Record:
    """Run a target as often as it may fail; return its last record."""
    record = run(target, at)
    for _ in range(target.tries - 1):
        if record["result"] == FAILED:
            record = run(target, at)
    return record


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a target that still runs, as Ctrl-C does, so that it ends what it started; then what is left of its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def load(place: Path = PLACE) -> dict[str, Record]:
    """Return the last record of each target."""
    found: list[Record] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    return {record["target"]: record for record in found}


def store(records: Iterable[Record], place: Path = PLACE) -> None:
    """Replace the records of these targets, but never by an older one or one that failed: what fails stays due."""
    known = load(place)
    for record in records:
        former = known.get(record["target"])
        if record["result"] in {OK, SKIPPED} and (former is None or former["at"] < record["at"]):
            known[record["target"]] = record
    names = {persistence.GROUP, *(target.name for target in TARGETS)}
    lines = [json.dumps(known[name]) for name in sorted(known) if name in names]
    place.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def in_log(text: str) -> list[Record]:
    """Return the records of a log."""
    return [json.loads(line.removeprefix(RECORD)) for line in text.splitlines() if line.startswith(RECORD)]


def table(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each result, and the totals."""
    found = list(records)
    width = max([len(record["target"]) for record in found], default=6)
    lines = [f"{record['target']:{width}}  {record['result']:9}  {record['seconds']:>6} s" for record in found]
    counts = ", ".join(
        f"{number} {result}"
        for result in (OK, SKIPPED, FAILED, TIMED_OUT)
        if (number := sum(record["result"] == result for record in found))
    )
    return [
        *lines,
        f"release-check: {len(found)} targets, {counts or 'none run'}, {sum(r['seconds'] for r in found)} s",
    ]


def main() -> int:
    """Run what is asked for; return 1 if a target failed."""
    parser = argparse.ArgumentParser(prog="make release-check", description="Run the long targets of the Makefile.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="some targets only; all by default")
    parser.add_argument("--due", action="store_true", help=f"what one landing of {LANDINGS} runs; writes no record")
    parser.add_argument("--record", type=Path, metavar="LOG", help="take over the records in a log of .ci/run")
    parser.add_argument("--list", action="store_true", help="list the targets with their bounds and last records")
    parser.add_argument("--persistence", action="store_true", help="status 0 if no landing must run these tests again")
    parser.add_argument("--passed", action="store_true", help="print the record that the persistence's tests passed")
    given = parser.parse_args()
    known = load()
    if given.persistence or given.passed:
        now = persistence.digest()
        if given.passed and now is not None:
            print_now(RECORD + json.dumps(persistence.record(now)))
        return 0 if given.passed or persistence.passed_before(known, now) else 1
    if given.record:
        found = in_log(given.record.read_text(encoding="utf-8", errors="replace"))
        store(found)
        print_now(f"{len(found)} records of {given.record} are in {PLACE.relative_to(ROOT)}")
        return 0
    if given.list:
        for target in TARGETS:
            last = known.get(target.name, {"result": "not run", "at": ""})
            state = f"{target.minutes:>3} min  {last['result']:9} {last['at']:26}"
            print_now(f"{target.name:22} {state} make {' '.join(target.words)}")
        return 0
    by_name = {target.name: target for target in TARGETS}
    if unknown := [name for name in given.names if name not in by_name]:
        parser.error(f"{', '.join(unknown)} is no long target; --list lists them")
    chosen = [by_name[name] for name in given.names] or list(TARGETS)
    if given.due:
        chosen = due({name: datetime.fromisoformat(record["at"]) for name, record in known.items()})
    # A CI's end unwinds as Ctrl-C does: the target that runs is ended with its processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    at, done = commit(), []
    for target in chosen:
        print_now(f"{target.name}: at most {target.minutes} min: make {' '.join(target.words)}")
        record = tried(target, at)
        done.append(record)
        print_now(RECORD + json.dumps(record))
        if not given.due:
            store([record])
    print_now("\n".join(table(done)))
    return 1 if any(record["result"] in {FAILED, TIMED_OUT} for record in done) else 0


if __name__ == "__main__":
    sys.exit(main())
