"""Errors of other packages as errors of a drop, with the status of its answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from delegation.errors import DelegationError, GuardRefused
from delegation.gateway.drop.errors import DropInterrupted, ServiceNotPermitted, TableNotPurgeable
from delegation.gateway.errors import GatewayError
from delegation.iceberg.errors import IcebergError
from delegation.tasks.errors import TaskError


@contextmanager
def as_drop_errors(what: str) -> Iterator[None]:
    """Raise the errors of other packages as errors of a drop of `what`."""
    try:
        yield
    except GatewayError:
        raise
    except (GuardRefused, IcebergError) as error:
        raise TableNotPurgeable(f"{what} was not dropped: {error.code}: {error}") from error
    except DelegationError as error:
        if error.retryable or isinstance(error, TaskError):
            raise DropInterrupted(what, error) from error
        raise ServiceNotPermitted(what, error) from error
