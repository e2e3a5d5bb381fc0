"""CloudWatch for a local stack: the metrics that its processes print, and what AWS measures, in the emulated service.

The alarms are those of the synthesized template, with this stack's names.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.infra.operations.watched import COMPARED


@dataclass
class Measured:
    """Puts metric data into CloudWatch; `names` are the values of dimensions by resource of the template."""

    cloudwatch: Any
    logs: Path
    names: Mapping[str, str]
    _read: dict[Path, int] = field(default_factory=dict)

    def collect(self) -> int:
        """Put the values of all new lines in the embedded metric format, as CloudWatch Logs does; return how many."""
        count = 0
        for log in sorted(self.logs.glob("*.log")):
            whole = log.read_bytes()
            fresh = whole[self._read.get(log, 0) : whole.rfind(b"\n") + 1]
            self._read[log] = self._read.get(log, 0) + len(fresh)
            for line in fresh.decode().splitlines():
                at = line.find("{")
                if '"_aws"' in line and at >= 0:
                    count += self._put(json.loads(line[at:]))
        return count

    def _put(self, blob: Mapping[str, Any]) -> int:
        moment, count = datetime.fromtimestamp(blob["_aws"]["Timestamp"] / 1000, UTC), 0
        for directive in blob["_aws"]["CloudWatchMetrics"]:
            for dimensions in directive["Dimensions"]:
                named = {name: blob[name] for name in dimensions}
                for metric in directive["Metrics"]:
                    value = blob[metric["Name"]]
                    for one in value if isinstance(value, list) else [value]:
                        self.put(directive["Namespace"], metric["Name"], named, one, moment)
                        count += 1
        return count

    def put(self, namespace: str, name: str, dimensions: Mapping[str, str], value: float, moment: datetime) -> None:
        """Put one value."""
        listed = [{"Name": key, "Value": text} for key, text in dimensions.items()]
        datum = {"MetricName": name, "Dimensions": listed, "Value": value, "Timestamp": moment}
        self.cloudwatch.put_metric_data(Namespace=namespace, MetricData=[datum])

    def is_raised(self, alarm: Mapping[str, Any], since: datetime) -> bool:
        """Whether an alarm of the template is raised by what was measured since a moment.

        Source: Amazon CloudWatch User Guide, "Evaluating an alarm"; the period begins with that moment.
        """
        found = self.cloudwatch.get_metric_statistics(
            Namespace=alarm["Namespace"],
            MetricName=alarm["MetricName"],
            Dimensions=[{"Name": one["Name"], "Value": self._named(one["Value"])} for one in alarm["Dimensions"]],
            StartTime=since,
            EndTime=datetime.now(UTC) + timedelta(minutes=1),
            Period=max(alarm["Period"], 3600),  # one period, wherever it began
            Statistics=[alarm["Statistic"]],
        )["Datapoints"]
        if not found:
            return bool(alarm["TreatMissingData"] == "breaching")
        compared = COMPARED[alarm["ComparisonOperator"]]
        return any(compared(one[alarm["Statistic"]], alarm["Threshold"]) for one in found)

    def _named(self, value: Any) -> str:
        if isinstance(value, str):
            return self.names.get(value, value)
        return self.names[value["Fn::GetAtt"][0] if "Fn::GetAtt" in value else value["Ref"]]


def eventually(read: Callable[[], Any], *, seconds: float = 120) -> Any:
    """Return the first result of `read` that is true; raises TimeoutError."""
    import threading

    end, pause = datetime.now(UTC) + timedelta(seconds=seconds), threading.Event()
    while not (found := read()):
        if datetime.now(UTC) > end:
            raise TimeoutError(f"not within {seconds} s")
        pause.wait(0.2)
    return found


def physical(template: Mapping[str, Any], wanted: Iterable[tuple[str, str, str]]) -> list[dict[str, str]]:
    """Return what CloudFormation would list: for each type and beginning of a logical id, the local resource."""
    found = []
    for kind, prefix, local in wanted:
        [name] = [
            name for name, one in template["Resources"].items() if one["Type"] == kind and name.startswith(prefix)
        ]
        found.append({"ResourceType": kind, "LogicalResourceId": name, "PhysicalResourceId": local})
    return found
