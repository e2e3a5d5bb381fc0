"""Errors of deliveries; every one is recorded at its notification, which is delivered again later."""

from polaris_common.errors import DelegationError


class NotificationError(DelegationError):
    """The root of this package's errors; no text has a URL, because its path or query may hold a secret."""

    code = "NOTIFICATION_ERROR"
    retryable = True


def malformed_message(message: str) -> NotificationError:
    """Return the error: a message of the queue is not of a notification; SQS moves it to the dead-letter queue."""
    return NotificationError(message, code="MALFORMED_MESSAGE", retryable=False)


class CallbackUnknown(NotificationError):
    """No setting names the callback any more."""

    code = "CALLBACK_UNKNOWN"


class CallbackKeysUnavailable(NotificationError):
    """The keys that sign callbacks cannot be read, or there is none for this callback."""

    code = "CALLBACK_KEYS_UNAVAILABLE"


def address_refused(message: str) -> NotificationError:
    """Return the error: the host of a callback has an address that must not be called."""
    return NotificationError(message, code="CALLBACK_ADDRESS_REFUSED")


def callback_unreachable(message: str) -> NotificationError:
    """Return the error: the receiver of a callback could not be reached, or was too slow."""
    return NotificationError(message, code="CALLBACK_UNREACHABLE")


def event_not_accepted(message: str) -> NotificationError:
    return NotificationError(message, code="EVENT_NOT_ACCEPTED")
