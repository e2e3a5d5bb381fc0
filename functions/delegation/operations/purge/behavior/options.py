"""Purge options from `operation_parameters.properties`; requests with unknown names were refused."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, cast

from delegation.keeping.options import OverlapScan
from delegation.operations.purge.behavior.limits import OPTIONS, PLAN, Limits
from delegation.operations.purge.options import PurgeOptions
from delegation.tasks.submission.options import DRY_RUN
from delegation.worksets.engines.choice import EngineChoice

_NO_LIMITS: Final = Limits()


def options_of(properties: Mapping[str, str], limits: Limits = _NO_LIMITS, *, accepted: bool = False) -> PurgeOptions:
    """Read a request's properties; raise InvalidOption or DelegationError (PROPERTY_NOT_ALLOWED), which name the
    property.

    In a request that was already `accepted`, a value that is looser than today's settings is replaced by the setting.
    """
    chosen = OPTIONS.chosen(properties, limits.requests, accepted=accepted)
    return replace(
        limits.base,
        outside=cast("Literal['keep', 'refuse', 'delete']", chosen["outside"]),
        uncovered=cast("Literal['refuse', 'keep']", chosen["uncovered"]),
        shared=cast("Literal['subtract', 'refuse']", chosen["shared"]),
        overlap_scan=cast("OverlapScan", chosen["overlap-scan"]),
        versioned=cast("Literal['report', 'refuse']", chosen["versioned"]),
        remove_directory_markers=chosen["deleteMarkerFiles"] == "true",
        engine=cast("EngineChoice | None", chosen["engine"] or None),
        dry_run=chosen[DRY_RUN] == "true",
        execute_plan=chosen.get(PLAN),
    )
