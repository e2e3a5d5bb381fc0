"""The results of checks, and how they are shown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from delegation.cli.screens import LabelledLines
from polaris_common.errors import counted

FORMAT: Final = 1
"""Of the JSON document: later documents of this format keep its members and may add more."""
CHECKS: Final[Mapping[str, str]] = {
    "settings": "the settings of the connection",
    "certificate": "the client certificate's files and dates",
    "handshake": "the TLS handshake with the service",
    "token": "the issuer of access tokens",
    "authorizer": "whether the service admits certificate and token",
    "realm": "the realm that the deployment serves",
    "service": "a part that the service depends on, as it reports itself; `subject` names the part",
    "paused": "a pause of tasks, while it lasts",
    "maintenance": "the service's own recurring tasks",
    "aws": "whether the parts below can be checked from here",
    "tasks_table": "the task table",
    "idempotency_table": "the table of idempotency records",
    "references_table": "the table of the reference index",
    "queue": "the queue of tasks, with its dead letters",
    "plan_bucket": "the bucket of plans and receipts",
    "polaris": "whether Polaris issues tokens and answers",
    "namespace": "whether the namespace can be listed",
    "endpoints": "unknown endpoints of tables that the catalog advertises, if any",
    "tombstones": "the namespace of tombstones",
    "callers": "whether a role may rename tables into it",
    "catalog": "whether the service works on a catalog of this kind",
    "names": "whether a recreated table gets a location of its own",
    "views": "whether views can be dropped",
    "principal": "the service's principal, with its roles",
    "grants": "whether the grants below can be checked",
    "grant": "a privilege of the service's principal; `subject` names it",
    "stack": "with `--deployed`: a CloudFormation stack; `subject` names it",
    "function": "with `--deployed`: a Lambda function",
    "queue_mapping": "with `--deployed`: the queue's event source mapping",
    "schedule": "with `--deployed`: an EventBridge rule",
    "state_machine": "with `--deployed`: the state machine and its logs",
    "emr_application": "with `--deployed`: the EMR Serverless application",
    "load_balancer_targets": "with `--deployed`: the targets of the load balancer",
    "alarms_topic": "with `--deployed`: whether the alarm topic has subscribers",
    "alarms": "with `--deployed`: the alarms and their state",
    "gateway_tombstones": "with `--deployed`: the gateway's table",
    "gateway_api": "with `--deployed`: the gateway's API",
    "gateway_endpoint": "with `--deployed`: the gateway's VPC endpoint",
    "gateway_alarms": "with `--deployed`: the gateway's alarms",
}
"""What can be checked, by the id in the JSON document; ids do not change from release to release."""
_WITH_SUBJECT: Final = re.compile(r"(?P<what>grant |stack |service: )(?P<subject>.+)", re.DOTALL)
_BETWEEN: Final = re.compile(r"'s?\b|'")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: `ok` is None if it could not be made; `fix` states how to repair it."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.id not in CHECKS:
            raise ValueError(f"the check {self.id} is not listed in CHECKS")

    @property
    def id(self) -> str:
        """The check's id: its name without the subject, in lower case with underscores."""
        match = _WITH_SUBJECT.fullmatch(self.name)
        what = match["what"].rstrip(": ") if match else self.name
        return "_".join(_BETWEEN.sub("", what).lower().split())

    @property
    def subject(self) -> str:
        """Which of several was checked, such as a privilege or a stack; empty if there is only one."""
        match = _WITH_SUBJECT.fullmatch(self.name)
        return match["subject"] if match else ""

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "subject": self.subject,
            "name": self.name,
            "ok": self.ok,
            "detail": self.detail,
            "fix": self.fix,
        }


def passed(name: str, detail: str) -> CheckResult:
    return CheckResult(name, ok=True, detail=detail)


def failed(name: str, detail: str, fix: str) -> CheckResult:
    return CheckResult(name, ok=False, detail=detail, fix=fix)


def not_checked(name: str, why: str) -> CheckResult:
    return CheckResult(name, ok=None, detail=why)


def report(findings: Sequence[CheckResult], release: str) -> dict[str, Any]:
    """Return the JSON document of a run (docs/doctor.schema.json)."""
    return {
        "format": FORMAT,
        "release": release,
        "ok": is_healthy(findings),
        "passed": sum(finding.ok is True for finding in findings),
        "failed": sum(finding.ok is False for finding in findings),
        "not_checked": sum(finding.ok is None for finding in findings),
        "checks": [finding.document() for finding in findings],
    }


def is_healthy(findings: Sequence[CheckResult]) -> bool:
    return all(finding.ok is not False for finding in findings)


def findings_screen(findings: Sequence[CheckResult]) -> RenderableType:
    """Return a line for each finding, with the fix below, unbroken because it is often a command to copy."""
    marks = {True: Text("✓", "green"), False: Text("✗", "bold red"), None: Text("-", "dim")}
    widest = max((len(finding.name) for finding in findings), default=0)
    parts: list[RenderableType] = []
    for finding in findings:
        style = "dim" if finding.ok is None else ""
        label = Text.assemble(marks[finding.ok], "  ", Text(finding.name, style))
        parts.append(LabelledLines([(label, Text(finding.detail, style))], label_width=widest + 3))
        if finding.fix:
            parts.append(Text(f"   → {finding.fix}", "yellow", no_wrap=True, overflow="ignore"))
    broken = sum(finding.ok is False for finding in findings)
    skipped = sum(finding.ok is None for finding in findings)
    rest = f", {skipped} not checked" if skipped else ""
    summary = Text(f"{broken} of {counted(len(findings), 'check')} failed{rest}.", "bold red") if broken else Text(
        f"{counted(len(findings) - skipped, 'check')} passed{rest}.", "green"
    )  # fmt: skip
    return Group(*parts, summary)
