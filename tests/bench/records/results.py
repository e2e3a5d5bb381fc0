"""bench/results.json: one record for each `make bench-record`, and what a new run is compared with."""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench.records.short import Figure
from tests.paths import ROOT

PLACE: Final = ROOT / "bench" / "results.json"
# Runs beside ten busy processes on two cores differed from their median by up to 10 %.
TOLERANCE: Final = 0.2
# Another kind of machine has other ratios: a faster disk, another decompression of zlib.
ELSEWHERE: Final = 0.5

Record = dict[str, Any]


def machine() -> dict[str, Any]:
    """Return the kind of machine: processor, cores and Python, never its name."""
    return {
        "processor": _model() or platform.machine(),
        "cores": len(_cores()),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def _cores() -> Sequence[str]:
    lines = _cpuinfo()
    return [line for line in lines if line.startswith("processor")] or [""]


def _model() -> str | None:
    return next((line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), None)


def _cpuinfo() -> list[str]:
    place = Path("/proc/cpuinfo")
    return place.read_text(encoding="utf-8").splitlines() if place.exists() else []


def commit() -> str:
    """Return the commit that is checked out, and `+` if files differ from it."""
    short = _git("rev-parse", "--short=10", "HEAD")
    return f"{short}+" if _git("status", "--porcelain", "--untracked-files=no") else short


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def load(place: Path = PLACE) -> list[Record]:
    """Return the records, the oldest first."""
    found: list[Record] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    return found


def add(figures: Mapping[str, Figure], note: str, place: Path = PLACE) -> Record:
    """Add a record, and return it."""
    record: Record = {
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "note": note,
        "figures": {name: described(figure) for name, figure in figures.items()},
    }
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps([*load(place), record], indent=1) + "\n", encoding="utf-8")
    return record


def described(figure: Figure) -> dict[str, Any]:
    """Return a figure as it is stored."""
    return {
        "yardstick": figure.yardstick,
        "cpu_ms": figure.cpu_ms,
        "yardstick_ms": figure.yardstick_ms,
        "ratio": round(figure.ratio, 4),
    }


def last(records: Sequence[Record], name: str, here: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the last recorded ratio of a benchmark and its tolerance: that of this kind of machine, else any."""
    having = [record for record in reversed(records) if name in record["figures"]]
    same = [record for record in having if record["machine"] == here]
    if not having:
        return None
    return (same or having)[0]["figures"][name]["ratio"], TOLERANCE if same else ELSEWHERE


def slower(records: Sequence[Record], name: str, ratio: float, here: Mapping[str, Any]) -> str | None:
    """Return by how much a ratio is beyond the tolerance; None if it is not, or nothing is recorded."""
    found = last(records, name, here)
    if found is None or ratio <= found[0] * (1 + found[1]):
        return None
    return f"{name}: {ratio:.3f} times the yardstick, recorded are {found[0]:.3f}; at most {1 + found[1]:.2f} of that"
