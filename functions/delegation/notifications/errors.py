"""Errors of deliveries; every one is recorded at its notification, which is delivered again later."""

from delegation.errors import DelegationError


class NotificationError(DelegationError):
    """The root of this package's errors; no text has a URL, because its path or query may hold a secret."""

    code = "NOTIFICATION_ERROR"
    retryable = True


class MalformedMessage(NotificationError):
    """A message of the queue is not of a notification; SQS moves it to the dead-letter queue."""

    code = "MALFORMED_MESSAGE"
    retryable = False


class CallbackUnknown(NotificationError):
    """No setting names the callback any more."""

    code = "CALLBACK_UNKNOWN"


class CallbackKeysUnavailable(NotificationError):
    """The keys that sign callbacks cannot be read, or there is none for this callback."""

    code = "CALLBACK_KEYS_UNAVAILABLE"


class AddressRefused(NotificationError):
    """The host of a callback has an address that must not be called."""

    code = "CALLBACK_ADDRESS_REFUSED"


class CallbackUnreachable(NotificationError):
    """The receiver of a callback could not be reached, or was too slow."""

    code = "CALLBACK_UNREACHABLE"


class CallbackNotAccepted(NotificationError):
    """The receiver answered with another status than 2xx."""

    code = "CALLBACK_NOT_ACCEPTED"


class EventNotAccepted(NotificationError):
    """EventBridge did not accept an event."""

    code = "EVENT_NOT_ACCEPTED"


class ReceiverSetApart(NotificationError):
    """The last deliveries to the receiver failed, so this one was not begun; one at a time tries it."""

    code = "RECEIVER_SET_APART"
