"""The two dashboards as data: what users feel, and what resources do; and saved queries of CloudWatch Logs Insights.

The names of resources are passed in: CDK's tokens, or a test's plain text. Source of the format: Amazon CloudWatch
API Reference, "Dashboard body structure and syntax". Queries follow a request, a task, or a kind of trouble through all
logs, in which every line of the service is a JSON object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delegation import metrics as m
from delegation.metrics import NAMESPACE, Metric

WIDTH: Final = 24
_THIRD: Final = 8
_SIXTH: Final = 4
_HEIGHT: Final = 7
_MINUTES: Final = 5
_LEGEND_BELOW: Final = 6
"""So many lines at most have their legend below the graph, where CloudWatch leaves it two or three rows."""
# Colors that people with red-green blindness tell apart (Okabe and Ito): bad, warning, good, and neutral ones.
BAD, WARNING, GOOD, CALM, FAINT = "#d55e00", "#e69f00", "#009e73", "#0072b2", "#999999"


@dataclass(frozen=True, slots=True)
class BoardNames:
    """The names of one deployment's resources; `functions` and `tables` by their names in the code.

    `lease_hours` is the threshold of the alarm LeaseAge. `users_alarms` and `resources_alarms` are the ARNs of the
    alarms that each dashboard shows. `balancer` and `targets` are CloudWatch's names for the load balancer and its
    target group, None in the regional profile; with `probes` the front is probed.
    """

    region: str
    service: str
    api: str
    api_stage: str
    queue: str
    dead_letters: str
    machine_arn: str
    application_id: str
    lease_hours: float
    balancer: str | None = None
    targets: str | None = None
    probes: bool = False
    functions: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    users_alarms: Sequence[str] = ()
    resources_alarms: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a graph: a metric of AWS or of the service with its statistic, or an expression of CloudWatch."""

    label: str
    color: str | None = None
    metric: tuple[str, ...] = ()
    statistic: str = "Sum"
    expression: str | None = None
    divided_by: int | None = None

    def json(self, number: int) -> list[list[Any]]:
        """Return the elements of `metrics` for line `number` of a graph; `divided_by` shows seconds as hours, say."""
        how: dict[str, Any] = {"label": self.label}
        if self.color:
            how["color"] = self.color
        if self.expression is not None:
            return [[{**how, "expression": self.expression}]]
        if self.divided_by is None:
            return [[*self.metric, {**how, "stat": self.statistic}]]
        hidden = {"id": f"m{number}", "visible": False, "stat": self.statistic}
        return [[{**how, "expression": f"m{number} / {self.divided_by}"}], [*self.metric, hidden]]


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph; `limit` is a horizontal line with its text."""

    title: str
    lines: tuple[Line, ...]
    unit: str = "count"
    stacked: bool = False
    limit: tuple[float, str] | None = None
    width: int = _THIRD

    def json(self, names: BoardNames, x: int, y: int) -> dict[str, Any]:
        axes: dict[str, Any] = {"left": {"label": self.unit, "min": 0, "showUnits": False}}
        properties: dict[str, Any] = {
            "title": self.title,
            "view": "timeSeries",
            "stacked": self.stacked,
            "region": names.region,
            "period": 60 * _MINUTES,
            "metrics": [element for number, line in enumerate(self.lines) for element in line.json(number)],
            "yAxis": axes,
            "legend": {"position": "bottom" if len(self.lines) <= _LEGEND_BELOW else "right"},
        }
        if self.limit is not None:
            value, text = self.limit
            properties["annotations"] = {"horizontal": [{"value": value, "label": text, "color": BAD}]}
        return {"type": "metric", "x": x, "y": y, "width": self.width, "height": _HEIGHT, "properties": properties}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a dashboard: a heading with the question that its graphs answer."""

    heading: str
    graphs: tuple[Graph, ...]


def body(names: BoardNames, alarms: Sequence[str], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a dashboard's body: the alarms in one strip, then the rows."""
    widgets: list[dict[str, Any]] = []
    y = 0
    if alarms:
        y = 1 + -(-len(alarms) // 6)  # CloudWatch shows six in a line
        strip = {"title": "Alarms (docs/runbook has a page for each)", "alarms": list(alarms)}
        widgets.append({"type": "alarm", "x": 0, "y": 0, "width": WIDTH, "height": y, "properties": strip})
    for row in rows:
        heading = {"markdown": f"## {row.heading}", "background": "transparent"}
        widgets.append({"type": "text", "x": 0, "y": y, "width": WIDTH, "height": 1, "properties": heading})
        x = 0
        for graph in row.graphs:
            widgets.append(graph.json(names, x, y + 1))
            x += graph.width
        y += 1 + _HEIGHT
    return {"start": "-PT12H", "periodOverride": "inherit", "widgets": widgets}


def users(names: BoardNames) -> dict[str, Any]:
    """Return the dashboard of what users feel: whether requests are taken, how long work takes, how it ends."""
    rows = (_requests(names), *_front(names), _work(names), _waiting(names), _deleted(names))
    return body(names, names.users_alarms, rows)


def resources(names: BoardNames) -> dict[str, Any]:
    """Return the dashboard of what resources do: which part is at its limit, fails, or does nothing."""
    return body(names, names.resources_alarms, (_attempts(names), _machinery(names), _functions(names), _stores(names)))


def _own(names: BoardNames, metric: Metric, label: str, color: str | None, statistic: str = "Sum") -> Line:
    return Line(label, color, (NAMESPACE, metric.name, "service", names.service), statistic)


def _hours(names: BoardNames, metric: Metric, label: str, color: str) -> Line:
    return replace(_own(names, metric, label, color, "Maximum"), divided_by=3600)


def _requests(names: BoardNames) -> Row:
    api = ("ApiName", names.api, "Stage", names.api_stage)
    requests = Graph(
        "Requests",
        (
            _own(names, m.TASKS_ACCEPTED, "accepted", GOOD),
            _own(names, m.TASKS_COMPLETED, "synchronous, succeeded", CALM),
            _own(names, m.REQUESTS_ATTACHED, "attached to a task", "#56b4e9"),
            _own(names, m.REQUESTS_REPLAYED, "replayed", FAINT),
            _own(names, m.REQUESTS_IN_PROGRESS, "still in progress", WARNING),
            _own(names, m.KEY_CONFLICTS, "key conflicts", BAD),
        ),
        stacked=True,
    )
    errors = Graph(
        "Errors that callers see",
        (
            Line("5XX", BAD, ("AWS/ApiGateway", "5XXError", *api)),
            Line("4XX (wrong requests)", FAINT, ("AWS/ApiGateway", "4XXError", *api)),
        ),
        limit=(5, "alarm ApiServerErrors (5XX)"),
    )
    latency = ("AWS/ApiGateway", "Latency", *api)
    answers = Graph(
        "Response time",
        (
            Line("median", CALM, latency, "p50"),
            Line("99th percentile", WARNING, latency, "p99"),
        ),
        unit="ms",
    )
    return Row("Are requests accepted?", (requests, errors, answers))


def _front(names: BoardNames) -> tuple[Row, ...]:
    """Return the row of the load balancer and the probe, none if the deployment has neither."""
    graphs: list[Graph] = []
    if names.balancer and names.targets:
        balancer = ("LoadBalancer", names.balancer)
        unhealthy = ("AWS/ApplicationELB", "UnHealthyHostCount", "TargetGroup", names.targets, *balancer)
        refused = ("AWS/ApplicationELB", "ClientTLSNegotiationErrorCount", *balancer)
        graphs += [
            Graph(
                "Targets of the load balancer",
                (Line("unhealthy", BAD, unhealthy, "Maximum"),),
                limit=(1, "alarm TargetsUnhealthy"),
            ),
            Graph(
                "Errors of the load balancer itself",
                (Line("5XX", BAD, ("AWS/ApplicationELB", "HTTPCode_ELB_5XX_Count", *balancer)),),
                limit=(5, "alarm FrontErrors"),
            ),
            Graph(
                "TLS handshakes with the load balancer",
                (Line("failed", WARNING, refused),),
                limit=(10, "alarm TlsFailures"),
            ),
        ]
    if names.probes:
        answered = _own(names, m.PROBES_SUCCEEDED, "answered", GOOD)
        graphs.append(Graph("Probes of the endpoint", (answered,), limit=(0, "alarm ProbeFailed")))
    width = WIDTH // max(len(graphs), 3)
    return (Row("Does the endpoint answer?", tuple(replace(graph, width=width) for graph in graphs)),) if graphs else ()


def _work(names: BoardNames) -> Row:
    failures = m.TASKS_ENDED_IN_FAILURE.name
    by_code = f'{{{NAMESPACE},service,kind,code}} MetricName="{failures}" service="{names.service}"'
    ends = Graph(
        "How tasks end",
        (
            _own(names, m.TASKS_SUCCEEDED, "SUCCESS", GOOD),
            _own(names, m.TASKS_ENDED_IN_FAILURE, "FAILURE", BAD),
            _own(names, m.TASKS_CANCELLED, "cancelled", FAINT),
        ),
        stacked=True,
    )
    codes = Graph(
        "Failures by code (docs/errors.md)",
        (Line("", None, expression=f"SEARCH('{by_code}', 'Sum', {60 * _MINUTES})"),),
        stacked=True,
    )
    seconds = Graph(
        "Time from request to end",
        (
            _own(names, m.TASK_SECONDS, "median", CALM, "p50"),
            _own(names, m.TASK_SECONDS, "99th percentile", WARNING, "p99"),
        ),
        unit="s",
    )
    return Row("Is work done, and how does it end?", (ends, codes, seconds))


def _waiting(names: BoardNames) -> Row:
    waiting = Graph("Tasks that wait for a place", (_own(names, m.TASKS_WAITING, "waiting", CALM, "Maximum"),))
    oldest = Graph(
        "Longest wait for a place",
        (_hours(names, m.OLDEST_WAITING_SECONDS, "longest wait", WARNING),),
        unit="hours",
        limit=(4, "alarm WaitingTasks"),
    )
    unfinished = Graph(
        "Oldest task without an outcome",
        (_hours(names, m.OLDEST_UNFINISHED_SECONDS, "age", WARNING),),
        unit="hours",
        limit=(24, "alarm UnfinishedTasks"),
    )
    return Row("Does anything wait too long?", (waiting, oldest, unfinished))


def _deleted(names: BoardNames) -> Row:
    files = Graph("Files deleted", (_own(names, m.FILES_DELETED, "files", CALM),))
    gigabytes = replace(_own(names, m.BYTES_DELETED, "gigabytes", CALM), divided_by=10**9)
    size = Graph("Bytes deleted", (gigabytes,), unit="GB")
    pushed = Graph(
        "Events and callbacks",
        (
            _own(names, m.NOTIFICATIONS_DELIVERED, "delivered", GOOD),
            _own(names, m.NOTIFICATIONS_FAILED, "failed, will be retried", WARNING),
            _own(names, m.NOTIFICATIONS_DEAD, "dead letters", BAD),
        ),
        stacked=True,
    )
    return Row("What was deleted, and who was notified?", (files, size, pushed))


def _attempts(names: BoardNames) -> Row:
    attempts = Graph(
        "Attempts",
        (
            _own(names, m.ATTEMPTS_STARTED, "started", CALM),
            _own(names, m.ATTEMPTS_RETRIED, "retried", WARNING),
            _own(names, m.ATTEMPTS_THROTTLED, "throttled", "#cc79a7"),
            _own(names, m.TASKS_LOST, "lost", BAD),
        ),
    )
    leases = Graph(
        "Longest running attempt",
        (_hours(names, m.OLDEST_LEASE_SECONDS, "age", CALM),),
        unit="hours",
        limit=(names.lease_hours, "alarm LeaseAge"),
    )
    spark = f'Namespace="AWS/EMRServerless" ApplicationId="{names.application_id}"'
    jobs = Graph(
        "Spark on EMR Serverless",
        (
            Line("jobs", None, expression=f"SEARCH('{spark} MetricName=\"RunningJobs\"', 'Maximum', 300)"),
            Line("workers", None, expression=f"SEARCH('{spark} MetricName=\"RunningWorkerCount\"', 'Maximum', 300)"),
        ),
    )
    return Row("Does work run?", (attempts, leases, jobs))


def _machinery(names: BoardNames) -> Row:
    queue = ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName")
    dispatching = Graph(
        "Dispatching",
        (
            Line("in the queue", CALM, (*queue, names.queue), "Maximum"),
            Line("dead letters", BAD, (*queue, names.dead_letters), "Maximum"),
            _own(names, m.DISPATCHES_UNANSWERED, "unanswered", WARNING),
            _own(names, m.DISPATCH_ERRORS, "errors", "#cc79a7"),
        ),
    )
    states = ("StateMachineArn", names.machine_arn)
    executions = Graph(
        "Executions",
        (
            Line("started", CALM, ("AWS/States", "ExecutionsStarted", *states)),
            Line("failed", BAD, ("AWS/States", "ExecutionsFailed", *states)),
            Line("timed out", WARNING, ("AWS/States", "ExecutionsTimedOut", *states)),
        ),
    )
    sweeps = Graph(
        "The sweeper",
        (
            _own(names, m.TASKS_SWEPT, "due tasks", CALM),
            _own(names, m.TASKS_REDISPATCHED, "dispatched again", WARNING),
            _own(names, m.SWEEP_ERRORS, "errors", BAD),
            _own(names, m.PAUSED, "paused", FAINT, "Maximum"),
        ),
    )
    return Row("Does the machinery run?", (dispatching, executions, sweeps))


def _functions(names: BoardNames) -> Row:
    def each(metric: str, statistic: str) -> tuple[Line, ...]:
        return tuple(
            Line(name, None, ("AWS/Lambda", metric, "FunctionName", deployed), statistic)
            for name, deployed in names.functions.items()
        )

    return Row(
        "Which function is slow, fails, or is refused?",
        (
            Graph("Errors of functions", each("Errors", "Sum"), stacked=True),
            Graph("Throttled by concurrency limits", each("Throttles", "Sum"), stacked=True),
            Graph("Duration, 99th percentile", each("Duration", "p99"), unit="ms"),
        ),
    )


def _stores(names: BoardNames) -> Row:
    def each(metric: str, suffix: str = "") -> tuple[Line, ...]:
        return tuple(
            Line(name + suffix, None, ("AWS/DynamoDB", metric, "TableName", deployed))
            for name, deployed in names.tables.items()
        )

    consumed = (*each("ConsumedReadCapacityUnits", ", read"), *each("ConsumedWriteCapacityUnits", ", written"))
    certificate = Graph(
        "Client certificates",
        (_own(names, m.CERTIFICATE_DAYS_LEFT, "days until the first expires", CALM, "Minimum"),),
        unit="days",
        limit=(30, "alarm CertificateExpires"),
        width=_SIXTH,
    )
    maintenance = Graph(
        "Last maintenance",
        (_hours(names, m.MAINTENANCE_AGE_SECONDS, "since it succeeded", CALM),),
        unit="hours",
        limit=(24, "alarm MaintenanceAge"),
        width=_SIXTH,
    )
    throttled = (*each("ReadThrottleEvents", ", reads"), *each("WriteThrottleEvents", ", writes"))
    graphs = (
        Graph("Capacity units of the tables", consumed, unit="units"),
        Graph("Throttled by DynamoDB", throttled, stacked=True),
        certificate,
        maintenance,
    )
    return Row("Are the stores at their limits, and is anything about to expire?", graphs)


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """One query over all log groups of the service; `answers` is the question, PASTE_… what to replace in it."""

    name: str
    answers: str
    text: str


_SHOWN: Final = "fields @timestamp, @log, level, action, message, task_id, attempt, status, error_code, reason"

QUERIES: Final = (
    SavedQuery(
        "one request",
        "What happened to a request from Polaris, from the API through queue, execution and steps to the Spark job?",
        f"{_SHOWN}\n| filter correlation_id = 'PASTE_CORRELATION_ID'\n| sort @timestamp asc\n| limit 1000",
    ),
    SavedQuery(
        "one task",
        "What did every process do with one task?",
        f"{_SHOWN}\n| filter task_id = 'PASTE_TASK_ID' or @message like 'PASTE_TASK_ID'\n| sort @timestamp asc\n"
        "| limit 1000",
    ),
    SavedQuery(
        "failures by code and table",
        "Which tables failed, and why?",
        "filter action = 'end' and status = 'FAILURE'\n"
        "| stats count(*) as failures, latest(summary) as last by error_code, table\n| sort failures desc\n| limit 100",
    ),
    SavedQuery(
        "throttled attempts by table",
        "For which tables does the object store throttle deletes?",
        "filter action = 'attempt' and @message like 'AttemptsThrottled'\n"
        "| stats count(*) as attempts, latest(@timestamp) as last, latest(task_id) as task by table\n"
        "| sort attempts desc\n| limit 100",
    ),
    SavedQuery(
        "largest purges",
        "Which purges deleted most, and how long did they take?",
        "filter action = 'end' and status = 'SUCCESS'\n"
        "| fields table, engine, attempt, seconds, files_deleted, bytes_deleted\n| sort bytes_deleted desc\n| limit 50",
    ),
    SavedQuery(
        "errors of the service",
        "Which errors and warnings does the service log?",
        "filter level in ['ERROR', 'CRITICAL', 'WARNING'] and action != 'end'\n"
        "| stats count(*) as lines, latest(@timestamp) as last by @log, message, error_code\n| sort lines desc\n"
        "| limit 100",
    ),
    SavedQuery(
        "slow and large invocations",
        "Which function reaches its time or memory limit?",
        "filter type = 'platform.report'\n"
        "| stats count(*) as invocations, pct(record.metrics.durationMs, 99) as ms_99,"
        " max(record.metrics.maxMemoryUsedMB) as mb, max(record.metrics.memorySizeMB) as mb_of,"
        " max(record.metrics.initDurationMs) as cold_ms by @log\n| sort ms_99 desc",
    ),
    SavedQuery(
        "refused callers",
        "Who is refused, and why?",
        "filter action = 'authorize'\n| stats count(*) as refusals by error_code, reason\n| sort refusals desc\n"
        "| limit 100",
    ),
)
