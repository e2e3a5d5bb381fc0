"""A schedule that calls a function at a fixed rate, as an EventBridge rule does; moto's rules never fire."""

import json
import logging
import threading
import uuid
from datetime import UTC, datetime
from typing import Self

from infra.local.errors import LocalStackError
from infra.local.lambdas.functions import LocalFunction

LOG = logging.getLogger(__name__)


class Clock:
    """Calls `function` every `interval_seconds`, first after one interval; a missed call is not repeated."""

    def __init__(self, function: LocalFunction, *, interval_seconds: float, region: str, account: str) -> None:
        self._function = function
        self._interval = interval_seconds
        self._region = region
        self._account = account
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Start the schedule in a thread."""
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the schedule and wait for a running call; may be called again."""
        self._stopping.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            try:
                invocation = self._function.invoke(json.dumps(self._event(datetime.now(UTC))).encode())
            except LocalStackError as exc:
                LOG.warning("%s", exc)
                continue
            if invocation.error:
                LOG.warning("%s failed, see %s", self._function.spec.name, self._function.log)

    def _event(self, now: datetime) -> dict[str, object]:
        """Return the event of a schedule (EventBridge user guide, "Scheduled events")."""
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": self._account,
            "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "region": self._region,
            "resources": [f"arn:aws:events:{self._region}:{self._account}:rule/{self._function.spec.name}"],
            "detail": {},
        }
