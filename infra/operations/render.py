"""Draw the dashboards from their definitions with sample data, so that a person can look at them without AWS.

`python -m infra.operations.render [FOLDER]` writes a page for each, and a picture too where Chromium is installed.
The samples tell one story: a day's work, and one hour in which Polaris is down.
"""

import argparse
import html
import math
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.environment.context import ROOT
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import service_name
from infra.operations import boards
from infra.operations.alarms import RESOURCES_ALARMS, USERS_ALARMS
from infra.operations.boards import BoardNames

_COLUMN, _ROW = 56, 42  # pixels of one unit of the grid
_LEGEND: Final = 100  # pixels beside a graph
_POINTS: Final = 144  # twelve hours of five minutes
_TROUBLE: Final = range(90, 102)  # the hour in which Polaris is down
_PALETTE: Final = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
    *("#f0e442", "#999999", "#332288", "#882255", "#44aa99", "#ddcc77"),
)
_TYPICAL: Final = {"count": 40.0, "ms": 300.0, "s": 400.0, "hours": 0.7, "GB": 400.0, "units": 220.0, "days": 96.0}
_BAD_WORDS: Final = re.compile(
    r"5XX|4XX|conflict|fail|dead|lost|error|throttl|unanswered|timed out|progress|refused|paused|another|again|_",
    re.IGNORECASE,
)
_GOOD: Final = {"delivered", "SUCCESS", "accepted"}
_CODES: Final = ("POLARIS_UNAVAILABLE", "FILES_SHARED", "CORRUPT_MANIFEST")
_STYLE: Final = """
body { margin: 16px; background: #f2f3f3; font: 13px system-ui, sans-serif; color: #16191f; }
.board { position: relative; }
.widget { position: absolute; box-sizing: border-box; padding: 4px; }
.card { background: #fff; border: 1px solid #d5dbdb; border-radius: 4px; height: 100%; box-sizing: border-box; padding: 8px; overflow: hidden; }
h1 { font-size: 18px; } h2 { margin: 10px 4px 0; font-size: 15px; } h3 { margin: 0 0 4px; font-size: 13px; font-weight: 600; }
.beside { display: flex; } .beside b { display: block; }
.legend { font-size: 11px; line-height: 15px; } .legend b { white-space: nowrap; font-weight: 400; } .legend i { display: inline-block; width: 9px; height: 9px; margin: 0 4px 0 8px; }
.alarm { display: inline-block; margin: 3px; padding: 3px 8px; border-radius: 3px; background: #e6f4ee; border-left: 4px solid #009e73; }
.alarm.raised { background: #fbe9df; border-left-color: #d55e00; font-weight: 600; }
"""  # noqa: E501 - one rule a line reads best


def sample_names(stage: str = "prod") -> BoardNames:
    service = service_name(stage)
    arn = "arn:aws:cloudwatch:eu-central-1:123456789012:alarm"
    return BoardNames(
        region="eu-central-1",
        balancer="app/polaris-delegation/0a1b2c3d4e5f6071",
        targets="targetgroup/polaris-delegation/1b2c3d4e5f607182",
        probes=True,
        service=service,
        api=service,
        api_stage="live",
        queue=f"{service}-dispatch",
        dead_letters=f"{service}-dead-letters",
        machine_arn=f"arn:aws:states:eu-central-1:123456789012:stateMachine:{service}-purge",
        application_id="00fexample",
        lease_hours=19,
        functions={name: f"{service}-{name}" for name in FUNCTIONS},
        tables={name: f"{service}-{name}" for name in ("tasks", "idempotency", "references")},
        users_alarms=[f"{arn}:{service}-{rule.name}" for rule in USERS_ALARMS],
        resources_alarms=[f"{arn}:{service}-{rule.name}" for rule in RESOURCES_ALARMS],
    )


def samples(label: str, unit: str, index: int, title: str) -> list[float]:
    """Return the sample values of a line, the same for the same line."""
    dice = random.Random(f"{label}/{unit}/{index}")  # noqa: S311 - a picture, no secret
    scale = _TYPICAL[unit] * (3 if "99th" in label else 1 / (1 + 0.7 * index))
    bad = bool(_BAD_WORDS.search(f"{label} {title}")) and unit == "count" and label not in _GOOD
    curves = []
    for at in range(_POINTS):
        day = 0.6 + 0.4 * math.sin(at / _POINTS * math.tau)
        value = scale * day * dice.uniform(0.75, 1.25)
        if bad:
            value = scale * dice.uniform(0.1, 0.4) if at in _TROUBLE else (1.0 if dice.random() < 0.02 else 0.0)
        elif at in _TROUBLE and unit in {"ms", "s", "hours"}:
            value *= 6
        curves.append(96 - at / 288 if unit == "days" else value)
    return curves


def drawn(widget: Mapping[str, Any]) -> str:
    """Return a graph as SVG, with its axis, its lines or stacked areas, the line of its limit, and a legend."""
    properties = widget["properties"]
    beside = properties["legend"]["position"] == "right"
    width = widget["width"] * _COLUMN - 26 - (_LEGEND if beside else 0)
    height = widget["height"] * _ROW - (52 if beside else 92)
    unit = properties["yAxis"]["left"]["label"]
    lines = _lines(properties["metrics"], unit, properties["title"])
    stacked = properties["stacked"]
    totals = [sum(column) for column in zip(*(values for _, _, values in lines), strict=True)]
    top = max(totals) if stacked else max(max(values) for _, _, values in lines)
    limits = properties.get("annotations", {}).get("horizontal", [])
    top = max([top, 1, *(limit["value"] for limit in limits)]) * 1.08
    frame = Frame(width, height, top)
    parts = [_axis(frame, unit)]
    below = [0.0] * _POINTS
    for _, color, values in lines:
        shown = [value + under for value, under in zip(values, below, strict=True)] if stacked else values
        points = frame.points(shown) + (frame.points(below)[::-1] if stacked else [])
        joined = " ".join(points)
        if stacked:
            parts.append(f'<polygon fill="{color}" fill-opacity="0.75" points="{joined}"/>')
        else:
            parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.6" points="{joined}"/>')
        below = shown if stacked else below
    parts += [_limit(limit, frame) for limit in limits]
    legend = " ".join(f'<b><i style="background:{color}"></i>{html.escape(label)}</b>' for label, color, _ in lines)
    picture = f'<svg width="{width}" height="{height + 16}">{"".join(parts)}</svg>'
    place = ' class="beside"' if beside else ""
    return f'<h3>{html.escape(properties["title"])}</h3><div{place}>{picture}<div class="legend">{legend}</div></div>'


def _lines(metrics: Sequence[Sequence[Any]], unit: str, title: str) -> list[tuple[str, str, list[float]]]:
    """Return label, color and values of each shown line; a search finds several, as CloudWatch would."""
    curves: list[tuple[str, str, list[float]]] = []
    for how in (metric[-1] for metric in metrics if metric[-1].get("visible", True)):
        searched = "expression" in how and "code" in how["expression"]
        for label in _CODES if searched else (how["label"],):
            color = how.get("color") or _PALETTE[len(curves) % len(_PALETTE)]
            curves.append((label, color, samples(label, unit, len(curves), title)))
    return curves


@dataclass(frozen=True, slots=True)
class Frame:
    width: int
    height: int
    top: float

    def y(self, value: float) -> float:
        return self.height - value / self.top * (self.height - 6)

    def points(self, values: Sequence[float]) -> list[str]:
        step = (self.width - 50) / (_POINTS - 1)
        return [f"{50 + at * step:.1f},{self.y(value):.1f}" for at, value in enumerate(values)]


def _across(y: float, frame: Frame, style: str) -> str:
    return f'<line x1="50" x2="{frame.width}" y1="{y:.1f}" y2="{y:.1f}" {style}/>'


def _limit(limit: Mapping[str, Any], frame: Frame) -> str:
    y, color = frame.y(limit["value"]), limit["color"]
    text = f'<text x="56" y="{y - 3:.1f}" font-size="10" fill="{color}">{html.escape(limit["label"])}</text>'
    return _across(y, frame, f'stroke="{color}" stroke-dasharray="4 3"') + text


def _axis(frame: Frame, unit: str) -> str:
    parts = []
    for part in (0, 0.5, 1):
        value = part * frame.top / 1.08
        y, text = frame.y(value), readable(value) + (f" {unit}" if part == 1 and unit != "count" else "")
        parts.append(_across(y, frame, 'stroke="#e3e7e7"'))
        parts.append(f'<text x="46" y="{y + 4:.1f}" font-size="10" text-anchor="end" fill="#687078">{text}</text>')
    for hour in range(0, 12, 3):
        x, y = 50 + hour / 12 * (frame.width - 50), frame.height + 13
        parts.append(f'<text x="{x:.0f}" y="{y}" font-size="10" fill="#687078">{hour:02d}:00</text>')
    return "".join(parts)


def readable(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{letter}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def page(title: str, body: Mapping[str, Any]) -> str:
    shown = "".join(_placed(widget) for widget in body["widgets"])
    board = f'<div class="board" style="width:{boards.WIDTH * _COLUMN}px;height:{_bottom(body)}px">{shown}</div>'
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>{board}"


def _placed(widget: Mapping[str, Any]) -> str:
    x, y, width, height = (widget[name] for name in ("x", "y", "width", "height"))
    at = f"left:{x * _COLUMN}px;top:{y * _ROW}px;width:{width * _COLUMN}px;height:{height * _ROW}px"
    match widget["type"]:
        case "text":
            inner = f"<h2>{html.escape(widget['properties']['markdown'].removeprefix('## '))}</h2>"
        case "alarm":
            properties = widget["properties"]
            inner = f'<div class="card"><h3>{properties["title"]}</h3>{_alarms(properties["alarms"])}</div>'
        case _:
            inner = f'<div class="card">{drawn(widget)}</div>'
    return f'<div class="widget" style="{at}">{inner}</div>'


def _alarms(arns: Sequence[str]) -> str:
    raised = ("ApiServerErrors", "TasksFailed", "TasksLost", "Throttled")
    names = [arn.rpartition("-")[2] for arn in arns]
    return "".join(f'<span class="alarm{" raised" if name in raised else ""}">{name}</span>' for name in names)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, and pictures where Chromium is; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "dashboards")
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    program = chromium()
    for name, body in (("users", boards.users(sample_names())), ("resources", boards.resources(sample_names()))):
        file = folder / f"{name}.html"
        file.write_text(page(f"{service_name('prod')}-{name}", body), encoding="utf-8")
        sys.stdout.write(f"{file}\n")
        if program is not None:
            picture = file.with_suffix(".png")
            size = f"--window-size={boards.WIDTH * _COLUMN + 40},{_bottom(body) + 80}"
            draw(program, file.as_uri(), picture, size)
            sys.stdout.write(f"{picture}\n")
    return 0


def _bottom(body: Mapping[str, Any]) -> int:
    """Return the pixels of a dashboard from its upper edge to its lower one."""
    return int(max(widget["y"] + widget["height"] for widget in body["widgets"])) * _ROW


def chromium() -> str | None:
    """Return the path of Chromium, None where it is not installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def draw(program: str, address: str, picture: Path, *options: str) -> None:
    """Draw a page with Chromium; raises subprocess.CalledProcessError if it fails."""
    always = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={picture}")
    subprocess.run([program, *always, *options, address], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
