"""The root of every error this service raises on purpose.

DelegationError
├── tasks:        TaskError (tasks/store.py) …
├── idempotency:  IdempotencyError …
├── polaris:      PolarisError …
├── purge:        PurgeError …
└── edge:         Problem …

Classes are split by what the caller can do next, never by where they were raised.
"""

from typing import ClassVar


class DelegationError(Exception):
    """Something this service foresees; its text never holds a credential and may be shown to a caller.

    `code` is the machine-readable error code recorded on a task and shown in `ErrorResponse.error_code`
    (delegation-service.txt, appendix); `retryable` says whether the same call may succeed later unchanged.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    retryable: ClassVar[bool] = False
