"""Planted faults: the service's functions with one safeguard broken, in the processes of a chaos run only.

A function is deployed with the handler `tests.chaos.plants.NAME`; the variable CHAOS_PLANTED names what is broken. A
plant whose target was renamed raises AttributeError: a fault that is not planted would be found by nobody.
"""

import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import patch

from infra.environment.functions import EVERY_FUNCTION

VARIABLE: Final = "CHAOS_PLANTED"


def _success_too_early() -> None:
    """Report the last data file of each batch as deleted, and do not delete it."""
    from delegation.storage.base import BatchResult
    from delegation.storage.s3 import S3ObjectStore

    real = S3ObjectStore.delete

    def delete(self: S3ObjectStore, bucket: str, keys: Sequence[str]) -> BatchResult:
        last = [key for key in keys if key.endswith(".parquet")][-1:]
        done = real(self, bucket, [key for key in keys if key not in last])
        return BatchResult((*done.deleted, *last), done.failed, done.delete_markers, done.absent)

    patch.object(S3ObjectStore, "delete", delete).start()


def _blind_to_clones() -> None:
    """Take no neighbour for one that shares files."""
    patch("delegation.removal.neighbours.is_overlapping", lambda _roots, _neighbour: False).start()


PLANTS: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {"success-too-early": _success_too_early, "blind-to-clones": _blind_to_clones}
)


def handler_of(function: str) -> str:
    """Return the handler with which a function is deployed so that the planted faults are in it."""
    return f"{__name__}.{function}"


def __getattr__(name: str) -> Any:
    """Plant what the variable names, once, and return the handler of the function `name`."""
    if name.startswith("_"):
        raise AttributeError(name)
    for each in filter(None, os.environ.get(VARIABLE, "").split(",")):
        PLANTS[each]()
    return pkgutil.resolve_name(EVERY_FUNCTION[name].handler)
