from collections.abc import Iterator
from contextlib import contextmanager

from delegation.errors import GuardRefused
from delegation.gateway.drop.errors import DropError, drop_interrupted, service_not_permitted
from delegation.gateway.errors import GatewayError
from delegation.iceberg.errors import IcebergError
from delegation.tasks.errors import TaskError
from polaris_common.errors import DelegationError


@contextmanager
def as_drop_errors(what: str) -> Iterator[None]:
    """Raise the errors of other packages as errors of a drop of `what`, with the status of its answer."""
    try:
        yield
    except GatewayError:
        raise
    except (GuardRefused, IcebergError) as error:
        raise DropError(
            f"{what} was not dropped: {error.code}: {error}",
            code="TABLE_NOT_PURGEABLE",
            status=409,
        ) from error
    except DelegationError as error:
        if error.retryable or isinstance(error, TaskError):
            raise drop_interrupted(what, error) from error
        raise service_not_permitted(what, error) from error
