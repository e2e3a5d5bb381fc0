"""The behaviors of expiries and of removals of orphan files."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.context import ExpirySettings
from delegation.removal.expiry.requests import Floor
from delegation.removal.neighbourhood import TableSource
from delegation.removal.orphans.behavior import OrphansBehavior
from delegation.removal.orphans.catalog_places import CatalogPlaces
from delegation.removal.orphans.context import OrphanSettings, few_threads
from delegation.removal.orphans.requests import OrphanLimits
from delegation.storage.base import ObjectStoreDenied, ObjectStoreUnavailable
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.model import TAG_RIGHTS, TagStore
from delegation.storage.listing.tags_s3 import S3Tags
from delegation.storage.locations import Root
from delegation.storage.s3 import S3Timeouts
from delegation.storage.s3_errors import code_of
from delegation.storage.sessions import s3_client
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.clients import aws
from delegation.wiring.operations import purge_settings, shared_access
from delegation.wiring.policies import deployed_policies
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.table_access import vended_table

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def expiry_settings() -> ExpirySettings:
    """Return the operator's numbers, the same as for purges."""
    numbers = purge_settings()
    return ExpirySettings(inline_max_files=numbers.inline_max_files, has_spark=numbers.has_spark, delete=numbers.delete)


def expiry_behavior(tasks: TaskService) -> ExpiryBehavior:
    """Return the behavior of expiries and their dry runs. References and the engine follow the settings of purges."""
    purge, tables = shared_access(tasks)
    properties = PurgeEnvironment.read().properties
    permissions = PolicyPermissions(deployed_policies(tables.requests), UpkeepLimits.from_properties(properties))
    return ExpiryBehavior(
        tasks=tasks,
        commits=tables,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        search=purge.search,
        hold=purge.hold,
        lost_refs=purge.references,
        settings=expiry_settings(),
        floor=Floor.from_properties(properties),
        permissions=permissions.of_expiry,
    )


def _role_tags(role: str, location: str, table: TableSource) -> TagStore:
    # The catalog states the store's endpoint and region when the table is loaded.
    return tags_as(aws("sts"), role, location, lambda: table.load().s3, utc_now)


def orphans_behavior(tasks: TaskService) -> OrphansBehavior:
    """Return the behavior of removals and their dry runs. References and the engine follow the settings of purges."""
    numbers = purge_settings()
    purge, tables = shared_access(tasks)
    properties = PurgeEnvironment.read().properties
    permissions = PolicyPermissions(deployed_policies(tables.requests), UpkeepLimits.from_properties(properties))
    return OrphansBehavior(
        tasks=tasks,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        search=purge.search,
        places=lambda catalogs, before: CatalogPlaces(tables, catalogs, before)(),
        hold=purge.hold,
        settings=OrphanSettings(
            inline_max_files=numbers.inline_max_files,
            has_spark=numbers.has_spark,
            delete=few_threads(numbers.delete.foreign),
        ),
        limits=OrphanLimits.from_properties(properties),
        tags=_role_tags,
        permissions=permissions.of_removal,
        asked_age=permissions.age_of,
    )


_SESSION: Final = "polaris-delegation-quarantine"
_SECONDS: Final = 3600
"""Chained roles get an hour at most; AssumeRole's minimum is 15 minutes."""
_MARGIN: Final = timedelta(minutes=10)
_CONNECTIONS: Final = 32
_LONGEST_PREFIX: Final = 1_000
"""Characters of a location in JSON; a session policy has 2,048 at most."""
_REFUSED: Final = frozenset({"AccessDenied", "AccessDeniedException", "RegionDisabledException"})


class AssumedRole:
    """S3 clients with an operator's role, for the objects at one location; thread-safe. `sts` is a client of STS."""

    def __init__(
        self, sts: Any, arn: str, location: str, settings: Callable[[], S3Settings], clock: Callable[[], datetime]
    ) -> None:
        self._sts = sts
        self._arn = arn
        self._root = Root.of(location)
        self._settings = settings
        self._clock = clock
        self._lock = Lock()
        self._made: tuple[S3Client, datetime] | None = None

    def client(self) -> "S3Client":
        """Return a client; assumes the role again before its keys expire. Raises ObjectStoreDenied if the role may not
        be assumed, ObjectStoreUnavailable if STS does not answer."""
        with self._lock:
            if self._made is None or self._clock() >= self._made[1] - _MARGIN:
                self._made = self._assume()
            return self._made[0]

    def _assume(self) -> "tuple[S3Client, datetime]":
        try:
            answer = self._sts.assume_role(
                RoleArn=self._arn,
                RoleSessionName=_SESSION,
                DurationSeconds=_SECONDS,
                Policy=json.dumps(session_policy(self._arn, self._root), separators=(",", ":")),
            )
        except ClientError as error:
            if code_of(error) in _REFUSED:
                raise ObjectStoreDenied(
                    f"the service may not assume the role {self._arn} for the bucket {self._root.bucket}: STS answered "
                    f"{code_of(error)}. Add the role of the service's functions to that role's trust policy"
                ) from error
            raise ObjectStoreUnavailable(
                f"the role {self._arn} cannot be assumed now: STS answered {code_of(error)}"
            ) from error
        except BotoCoreError as error:
            raise ObjectStoreUnavailable(
                f"the role {self._arn} cannot be assumed now: the call to STS failed with {type(error).__name__}"
            ) from error
        keys = answer["Credentials"]
        settings = self._settings()
        client = s3_client(
            settings,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys["SessionToken"],
            config=S3Timeouts().config(
                max_pool_connections=_CONNECTIONS, s3={"addressing_style": "path"} if settings.path_style else None
            ),
        )
        return client, keys["Expiration"]


def session_policy(arn: str, root: Root) -> dict[str, Any]:
    """Return the policy that narrows a role's session to tagging the objects at a location."""
    partition = arn.split(":")[1]
    # Without ListBucket S3 answers 403 for a missing object.
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": list(TAG_RIGHTS),
                "Resource": f"arn:{partition}:s3:::{root.bucket}/{_below(root.prefix)}*",
            },
            {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:{partition}:s3:::{root.bucket}"},
        ],
    }


def _below(prefix: str) -> str:
    """Return the prefix of the ARNs of objects at a prefix, cut if too long for a policy. `*`, `?` and `$` are written
    as `${*}`, `${?}` and `${$}` (IAM User Guide, policy variables)."""
    below, left = "", _LONGEST_PREFIX
    for character in f"{prefix}/" if prefix else "":
        literal = f"${{{character}}}" if character in "*?$" else character
        left -= len(json.dumps(literal)) - 2
        if left < 0:
            break
        below += literal
    return below


def tags_as(
    sts: Any, arn: str, location: str, settings: Callable[[], S3Settings], clock: Callable[[], datetime]
) -> S3Tags:
    """Return what tags the files of a table as an operator's role. Raises as AssumedRole.client."""
    role = AssumedRole(sts, arn, location, settings, clock)
    role.client()
    return S3Tags(role.client)
