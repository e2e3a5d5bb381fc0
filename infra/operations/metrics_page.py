"""docs/metrics.md: every metric, and the alarms that watch it; `make regenerate` writes it."""

from pathlib import Path
from typing import Final

from delegation.metrics import METRICS, Area
from infra.environment.context import ROOT
from infra.operations.alarms import ALARMS

PAGE: Final = ROOT / "docs" / "metrics.md"
_INTRODUCTION: Final = """# Metrics

    aws cloudwatch list-metrics --namespace PolarisDelegation --dimensions Name=service,Value=polaris-delegation-prod

CloudWatch reads the metrics from log lines, which also name task and table. Each metric exists per stage (`service`),
and again for each value of the dimensions in the column *by*. Types and codes of your own behaviors are `OTHER`. Names
that end in `Seconds` have the unit Seconds, `BytesDeleted` has Bytes, and all others have Count.
"""


def page() -> str:
    parts = [_INTRODUCTION]
    for area in Area:
        parts.append(f"\n## {area}\n\n| metric | by | meaning | alarm |\n|---|---|---|---|\n")
        for metric in METRICS.values():
            if metric.area is area:
                by = ", ".join(f"`{name}`" for name in metric.by)
                pages = [f"[{r.name}]({r.page.removeprefix('docs/')})" for r in ALARMS if r.source == metric]
                parts.append(f"| `{metric.name}` | {by} | {metric.meaning} | {', '.join(pages)} |\n")
    return "".join(parts)


def files() -> dict[Path, str]:
    return {PAGE: page()}
