"""Alarms of the synthesized template, evaluated as CloudWatch does on metrics that a process printed.

Source: Amazon CloudWatch User Guide, "Evaluating an alarm" and "Specification: Embedded metric format".
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from infra.environment.functions import EVERY_FUNCTION

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"Sum": sum, "Maximum": max, "Minimum": min}
COMPARED: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}


@dataclass(frozen=True)
class TemplateAlarm:
    """One AWS::CloudWatch::Alarm, and the template that has it."""

    properties: dict[str, Any]
    resources: dict[str, Any]

    @property
    def dimensions(self) -> dict[str, Any]:
        return {one["Name"]: one["Value"] for one in self.properties.get("Dimensions", [])}

    def resource(self, dimension: str) -> dict[str, Any]:
        """Return the resource that a dimension names."""
        value = self.dimensions[dimension]
        name = value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0]
        found: dict[str, Any] = self.resources[name]
        return found

    def is_raised_by(self, *periods: Sequence[float]) -> bool:
        """Return whether the alarm is raised after these periods, each with its values; the last ones count."""
        wanted = self.properties["EvaluationPeriods"]
        return len(periods) >= wanted and all(self._breaches(values) for values in periods[-wanted:])

    def _breaches(self, values: Sequence[float]) -> bool:
        if not values:
            return bool(self.properties["TreatMissingData"] == "breaching")
        statistic = STATISTICS[self.properties.get("Statistic", "Sum")](values)
        return COMPARED[self.properties["ComparisonOperator"]](statistic, self.properties["Threshold"])

    def values_in(self, printed: str) -> list[float]:
        """Return the values that printed lines have for the alarm's metric and exactly its dimensions."""
        assert self.properties["Namespace"] == "PolarisDelegation", "AWS measures this alarm's metric, not the service"
        found: list[float] = []
        for line in printed.splitlines():
            if not line.startswith("{") or '"_aws"' not in line:
                continue
            blob = json.loads(line)
            for directive in blob["_aws"]["CloudWatchMetrics"]:
                metrics = {one["Name"] for one in directive["Metrics"]}
                if directive["Namespace"] == "PolarisDelegation" and self.properties["MetricName"] in metrics:
                    shown = [{name: blob[name] for name in names} for names in directive["Dimensions"]]
                    found += blob[self.properties["MetricName"]] if self.dimensions in shown else []
        return found


@dataclass
class WatchedTemplate:
    """The alarms of a deployment by their names in `infra/operations/alarms.py`."""

    document: dict[str, Any]

    def __getitem__(self, name: str) -> TemplateAlarm:
        resources = self.document["Resources"]
        [found] = [
            body["Properties"]
            for body in resources.values()
            if body["Type"] == "AWS::CloudWatch::Alarm" and body["Properties"]["AlarmName"].endswith(f"-{name}")
        ]
        return TemplateAlarm(found, resources)

    def environ(self, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set the variables for metrics as the template gives them to a function."""
        [variables] = [
            body["Properties"]["Environment"]["Variables"]
            for body in self.document["Resources"].values()
            if body["Type"] == "AWS::Lambda::Function"
            and body["Properties"]["Handler"] == EVERY_FUNCTION[function].handler
        ]
        for name, value in variables.items():
            if name.startswith("POWERTOOLS_"):
                monkeypatch.setenv(name, value)
