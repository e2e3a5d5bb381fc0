"""docs/performance.svg, the history of the records that docs/performance.md shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from tests.bench.records.results import Record, load
from tests.paths import ROOT

PLOT: Final = ROOT / "docs" / "performance.svg"
_WIDTH, _ROW, _LEFT, _RIGHT = 760, 44, 210, 60


def plot(records: Sequence[Record]) -> str:
    """Return a small chart for each benchmark: its ratio in every record, as a multiple of the first."""
    names = list(dict.fromkeys(name for record in records for name in record["figures"]))
    height = _ROW * len(names) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        "<style>text { font-size: 12px }</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        '<text x="8" y="16" fill="#555">CPU time as a multiple of the yardstick; lower is faster</text>',
    ]
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(records) - 1)
    for row, name in enumerate(names):
        found = [
            (at, record["figures"][name]["ratio"]) for at, record in enumerate(records) if name in record["figures"]
        ]
        top, most = 30 + row * _ROW, max(ratio for _, ratio in found)
        points = [(_LEFT + at * step, top + 34 - 28 * ratio / most) for at, ratio in found]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out += [
            f'<text x="8" y="{top + 24}">{escape(name)}</text>',
            f'<line x1="{_LEFT}" y1="{top + 34}" x2="{_WIDTH - _RIGHT}" y2="{top + 34}" stroke="#ddd"/>',
            f'<polyline points="{path}" fill="none" stroke="#1f77b4" stroke-width="2"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f77b4"/>' for x, y in points),
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{top + 24}">{found[-1][1]:.3f}</text>',
        ]
    return "\n".join([*out, "</svg>"]) + "\n"


def files() -> dict[Path, str]:
    """Return the plot as it is made from the records."""
    return {PLOT: plot(load())}


def draw() -> None:
    """Write the plot."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    draw()
