"""The rotation of the service's client secret in Polaris (AWS Secrets Manager user guide, "Lambda rotation functions").

Polaris itself makes the new secret and returns it once (`POST principals/{name}/rotate`, which only the principal may
call), so `createSecret` does that, and `setSecret` nothing. Polaris keeps the former secret valid until the next
rotation (apache/polaris, class PolarisPrincipalSecrets): a reader of AWSCURRENT always works. A second rotation ends
the former secret at once, so a rotation with an unknown outcome is not repeated: the stored secret still works, and
would not after another lost answer. The label BEGUN marks a version from which a rotation was started.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from delegation.polaris.answers import (
    PolarisError,
    PolarisMisconfigured,
    PolarisOutcomeUnknown,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
    SecretOutcomeUnknown,
)
from delegation.polaris.management import PolarisManagement
from delegation.polaris.requests import ClientCredentials, TokenSource, subject_of
from delegation.polaris.settings import PENDING, credentials_of

CURRENT: Final = "AWSCURRENT"
BEGUN: Final = "DELEGATION_ROTATION_BEGUN"
"""The staging label of the version from which the last rotation was started."""
_TRANSIENT: Final = frozenset({"InternalServiceError", "InternalServiceErrorException", "ThrottlingException"})
_ABSENT: Final = "ResourceNotFoundException"


class RotationStep(StrEnum):
    """The steps, in their order; each may be repeated."""

    CREATE = "createSecret"
    SET = "setSecret"
    TEST = "testSecret"
    FINISH = "finishSecret"


_STEPS: Final = frozenset(RotationStep)


@dataclass(frozen=True, slots=True)
class RotationEvent:
    """What Secrets Manager invokes the function with; `token` is the id of the new version."""

    step: RotationStep
    secret_id: str
    token: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "RotationEvent":
        """Parse an event. PolarisMisconfigured names the fields."""
        match event:
            case {"Step": str(step), "SecretId": str(secret_id), "ClientRequestToken": str(token)} if step in _STEPS:
                return cls(RotationStep(step), secret_id, token)
            case _:
                raise PolarisMisconfigured(
                    f"the event needs SecretId, ClientRequestToken and Step ({', '.join(RotationStep)}). Only Secrets "
                    "Manager may invoke this function"
                )


class OwnPrincipal:
    """The principal of a token source, which needs no privilege to rotate its own secret."""

    def __init__(self, management: PolarisManagement, token: TokenSource) -> None:
        self._management = management
        self._token = token

    def sign_in(self) -> None:
        """Get a fresh token. Raises PolarisUnauthorized if the secret is refused."""
        self._token.token()

    def rotate(self) -> ClientCredentials:
        """Return new credentials. Raises PolarisOutcomeUnknown if Polaris may have made some without an answer."""
        return self._management.rotate_secret(subject_of(self._token.token()))


class SecretRotation:
    """Performs the steps; `principal` returns the principal that signs in with given credentials. `secrets_manager` is
    a boto3 client. Raises SecretOutcomeUnknown, PolarisMisconfigured, PolarisUnavailable, and the principal's
    errors."""

    def __init__(self, secrets_manager: Any, principal: Callable[[ClientCredentials], OwnPrincipal]) -> None:
        self._secrets_manager = secrets_manager
        self._principal = principal

    def perform(self, event: RotationEvent) -> None:
        """Perform one step; a repeated step changes nothing."""
        stages = self._stages(event)
        if CURRENT in stages[event.token]:
            return  # all steps are done
        if PENDING not in stages[event.token]:
            raise PolarisMisconfigured(
                f"version {event.token} of {event.secret_id} lacks the stage {PENDING}, so nothing was rotated"
            )
        match event.step:
            case RotationStep.CREATE:
                self._create(event, stages)
            case RotationStep.TEST:
                self._test(event)
            case RotationStep.FINISH:
                self._finish(event, stages)
            case RotationStep.SET:
                return  # Polaris has it since createSecret

    def _create(self, event: RotationEvent, stages: Mapping[str, frozenset[str]]) -> None:
        if self._value(event.secret_id, VersionId=event.token, VersionStage=PENDING) is not None:
            return
        current = _with(CURRENT, stages)
        credentials = self._value(event.secret_id, VersionStage=CURRENT)
        if current is None or credentials is None:
            raise PolarisMisconfigured(f"{event.secret_id} has no credentials to rotate. Store them first")
        principal = self._principal(credentials_of(credentials, event.secret_id))
        principal.sign_in()
        begun = _with(BEGUN, stages)
        if begun == current:
            raise SecretOutcomeUnknown(
                f"an earlier rotation of {event.secret_id} had no clear answer. The stored secret still works, but "
                "another rotation may invalidate it. Reset the principal as root, store the new secret, and rotate "
                "again (runbook, Secret rotation)"
            )
        self._move(event.secret_id, BEGUN, current, begun)
        try:
            made = principal.rotate()
        except (PolarisOutcomeUnknown, PolarisUnexpectedAnswer):
            raise
        except PolarisError:
            # Polaris refused or was not reached, so nothing was made: the next attempt may rotate.
            self._remove(event.secret_id, BEGUN, current)
            raise
        text = json.dumps(
            {"client_id": made.client_id, "client_secret": made.client_secret.get_secret_value()}, separators=(",", ":")
        )
        self._call(
            "put_secret_value",
            SecretId=event.secret_id,
            ClientRequestToken=event.token,
            SecretString=text,
            VersionStages=[PENDING],
        )

    def _test(self, event: RotationEvent) -> None:
        """Sign in with the new credentials, or with the present ones if only a new schedule is tested."""
        text = self._value(event.secret_id, VersionId=event.token) or self._value(event.secret_id, VersionStage=CURRENT)
        if text is None:
            raise PolarisMisconfigured(f"{event.secret_id} has no credentials to test. Store them first")
        self._principal(credentials_of(text, event.secret_id)).sign_in()

    def _finish(self, event: RotationEvent, stages: Mapping[str, frozenset[str]]) -> None:
        self._move(event.secret_id, CURRENT, event.token, _with(CURRENT, stages))

    def _stages(self, event: RotationEvent) -> dict[str, frozenset[str]]:
        described = self._call("describe_secret", SecretId=event.secret_id)
        if not described.get("RotationEnabled"):
            raise PolarisMisconfigured(f"rotation of {event.secret_id} is not enabled")
        versions = described.get("VersionIdsToStages", {})
        stages = {version: frozenset(labels) for version, labels in versions.items()}
        if event.token not in stages:
            raise PolarisMisconfigured(f"{event.secret_id} has no version {event.token} to rotate to")
        return stages

    def _value(self, secret_id: str, **which: str) -> str | None:
        return self._call("get_secret_value", SecretId=secret_id, **which).get("SecretString")

    def _move(self, secret_id: str, label: str, to: str, before: str | None) -> None:
        former = {} if before is None else {"RemoveFromVersionId": before}
        self._call("update_secret_version_stage", SecretId=secret_id, VersionStage=label, MoveToVersionId=to, **former)

    def _remove(self, secret_id: str, label: str, version: str) -> None:
        self._call("update_secret_version_stage", SecretId=secret_id, VersionStage=label, RemoveFromVersionId=version)

    def _call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Call Secrets Manager; the value of an absent version is empty."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - commands do without

        try:
            answer: Mapping[str, Any] = getattr(self._secrets_manager, operation)(**arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if (operation, code) == ("get_secret_value", _ABSENT):
                return {}
            kind = PolarisUnavailable if code in _TRANSIENT else PolarisMisconfigured
            raise kind(f"the call {operation} to Secrets Manager failed: {code}") from error
        except BotoCoreError as error:
            raise PolarisUnavailable(
                f"the call {operation} to Secrets Manager failed: {type(error).__name__}"
            ) from error
        return answer


def _with(label: str, stages: Mapping[str, frozenset[str]]) -> str | None:
    return next((version for version, labels in stages.items() if label in labels), None)
