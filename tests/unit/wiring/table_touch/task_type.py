"""TABLE_TOUCH as the service would have it: a task type of its own folder and one line in `wiring.types`.

It has an option that callers and the operator set, a note that is free text, and nothing in common with a purge.
"""

import json
from datetime import timedelta
from typing import Final

from delegation.metrics import Metric
from delegation.tasks.life.declared import Measured, TaskType
from delegation.tasks.life.model import Labels, Task

NAME: Final = "TABLE_TOUCH"
PREFIX: Final = "delegation.touch."
DEADLINE: Final = timedelta(hours=6)
_COUNTED: Final[dict[str, Metric | None]] = {"levels_touched": None}


def _labels(payload: str) -> Labels:
    document = json.loads(payload)
    return Labels(document["table"], document["correlation_id"], document["realm"])


def _measured(task: Task) -> Measured | None:
    touched = task.reported.get("levels_touched")
    return None if touched is None else Measured(touched, 2, "levels")


TABLE_TOUCH: Final = TaskType(
    name=NAME,
    labels=_labels,
    counted=_COUNTED,
    retry={"max-attempts": "2"},
    properties=PREFIX,
    requests="tests.unit.wiring.table_touch.requests:TOUCH_FORM",
    measured=_measured,
).run_by("tests.unit.wiring.table_touch.work:behaviors")
