"""The event of a task's end on Amazon EventBridge; its detail is the body that callbacks have."""

from typing import Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from delegation.notifications.https import event_not_accepted
from delegation.tasks.life.notifications import Notification

SOURCE: Final = "polaris.delegation"
DETAIL_TYPE: Final = "Task Ended"


class EventBus(Protocol):
    def put(self, owed: Notification) -> None:
        """Put one event; raises NotificationError (EVENT_NOT_ACCEPTED)."""


class EventBridge:
    """EventBus over a boto3 EventBridge client; consumers recognize a repeated event by `detail.notification_id`."""

    def __init__(self, client: Any, bus: str) -> None:
        """`bus` is the name or the ARN of the event bus."""
        self._client = client
        self._bus = bus

    def put(self, owed: Notification) -> None:
        entry = {
            "EventBusName": self._bus,
            "Source": SOURCE,
            "DetailType": DETAIL_TYPE,
            "Time": owed.created_ts,
            "Detail": owed.body,
        }
        try:
            answer = self._client.put_events(Entries=[entry])
        except ClientError as error:
            raise event_not_accepted(f"EventBridge answered {error.response['Error']['Code']}") from None
        except BotoCoreError as error:
            raise event_not_accepted(f"EventBridge was not reached: {type(error).__name__}") from None
        if answer.get("FailedEntryCount"):
            code = answer["Entries"][0].get("ErrorCode", "no code")
            raise event_not_accepted(f"EventBridge refused the event: {code}")
