"""What a person should do next about each error, by its code or its class."""

import re
from collections.abc import Mapping, Set
from typing import Final

from delegation.cli.interruption import Interrupted
from delegation.client import errors as client
from delegation.errors import DelegationError, GuardRefused
from delegation.persistence import errors as persistence
from delegation.polaris import errors as polaris
from delegation.tasks import errors as tasks
from delegation.tasks.life import policy
from delegation.upkeep import policy_file
from delegation.upkeep.rules import content as upkeep
from delegation.worksets.errors import FilesNotDeleted

_LIST: Final = "`delegation tasks list` shows all tasks."
_REFS: Final = "`delegation persistence refs list` shows the references and which of their recent heads are complete."
_REPEAT: Final = "Run the same command again with the same --key: it attaches to the running task"

_OF_CODES: Final[Mapping[str, str]] = {
    "HEAD_NOT_LISTED": _REFS,
    "HEAD_INCOMPLETE": f"Choose another head. {_REFS}",
    "PLAN_OF_ANOTHER_TABLE": "Give --plan the place of this table's plan, or an empty place.",
    "NO_SUCH_POLICY": "Check the name CATALOG.NAMESPACE.POLICY; `delegation policy list` shows a namespace's.",
    "POLICY_ALREADY_EXISTS": "Choose another name, or attach the policy that exists.",
    "POLICY_IN_USE": "Detach it first; `delegation policy show` names what applies to a table.",
    "POLICY_REFUSED": "Correct the content; docs/upkeep.md has what each type may contain.",
    "POLICY_TYPE_ATTACHED": "Detach the policy of this type that is attached there; one of a type applies.",
    "POLICY_NOT_ATTACHED": "Check the names; `delegation policy show` names what applies.",
}
"""Of codes that errors have without a class of their own."""
# The first matching class counts, so a subclass precedes its base class.
_NEXT_STEPS: Final[tuple[tuple[type[DelegationError], str], ...]] = (
    (client.ClientMisconfigured, "Correct the setting that the message names (docs/command.md lists all)."),
    (client.ServiceUnreachable, "Check that the service is running; `delegation local up` starts one on this machine."),
    (client.TlsRefused, "Check the certificate, its key and the CA; a local stack has new ones after a restart."),
    (client.TokenUnavailable, "Check the token URL, the client id, the secret and the scope."),
    (client.AnswerLost, f"{_REPEAT}, if the request was accepted."),
    (client.IdempotencyWindowExpired, f"Check whether the task exists before you submit again: {_LIST}"),
    (client.NothingPurged, "Look at the task's result: `delegation tasks show ID`."),
    (
        client.TableChangedSincePurge,
        "Check who wrote to the table or recreated it, before you purge what is there now.",
    ),
    (client.PurgedNotDropped, "Drop the table from the catalog without purge; its files are deleted."),
    (client.IdempotencyKeyConflict, "Omit --key, or use a new key."),
    (client.InvalidRequest, "Correct the field that the message names."),
    (client.NotAuthenticated, "Check that the deployment trusts the token's issuer, and this machine's clock."),
    (client.NotPermitted, "Check the realm, the token's scope and which client certificate is admitted."),
    (client.NotFound, f"Check the name or id. {_LIST}"),
    (client.Conflict, f"Resolve what the message names about the table, then submit again. {_LIST}"),
    (client.RequestStillRunning, "`delegation tasks watch ID` follows the task."),
    (client.TaskFailed, "`delegation tasks history ID` shows each attempt; submit the table again to resume."),
    (
        client.PermanentFailure,
        "Have the service's operator remove the cause that the message names, then submit again.",
    ),
    (client.ServiceFailed, f"Try again in a moment. {_REPEAT}."),
    (client.DelegationClientError, "Check the service's address, with its base path /delegation-service/api."),
    (persistence.ReferenceNotFound, _REFS),
    (persistence.StaleObject, f"Another process committed meanwhile; check the heads and reset again. {_REFS}"),
    (persistence.BackendUnavailable, "Check the tables' names, the region and your AWS credentials."),
    (GuardRefused, "Nothing was deleted; docs/architecture/guards.md has the setting of each guard."),
    (Interrupted, "Repeat the command with the same options; it continues where this one stopped."),
    (FilesNotDeleted, "The full list is beside the plan, under `failed`; remove the cause, then rerun the command."),
    (tasks.TaskNotFound, f"Check the id. {_LIST}"),
    (policy.InvalidProperty, "Correct the property that the message names."),
    (tasks.MalformedRecord, "A newer release wrote the record: use that release's command."),
    (tasks.StoreUnavailable, "Check the table's name, the endpoint, the region and your AWS credentials."),
    (upkeep.PolicyInvalid, "Correct the content; docs/upkeep.md has what each type may contain."),
    (policy_file.PolicyFileInvalid, "Correct the file; docs/upkeep.md has its form."),
    (polaris.NoSuchTable, "Check the name CATALOG.NAMESPACE.TABLE; put `backquotes` around a part with a dot."),
    (polaris.NoSuchNamespace, "Check the namespace; dots separate its levels."),
    (polaris.NoSuchCatalog, "Check the catalog, the first part of the name."),
    (polaris.PoliciesNotSupported, "Give the policies in a file, with --policy-file (docs/upkeep.md)."),
    (polaris.TableMetadataMissing, "The table's files are already deleted; drop it from the catalog without purge."),
    (polaris.PolarisForbidden, "Have the privilege granted in Polaris (docs/architecture/trust.md)."),
    (polaris.PolarisError, "Check the address of Polaris and your credential there."),
)
# Of what the service did not find, its code says whether that is a task or something in Polaris.
_OF_POLARIS: Final = {
    kind.code: step
    for kind, step in _NEXT_STEPS
    if kind in {polaris.NoSuchTable, polaris.NoSuchNamespace, polaris.NoSuchCatalog}
}
_AGAIN: Final = "Run the command again."
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_QUOTED: Final = re.compile(r"`[^`]*`")
_OTHERWISE: Final = "Run the command again; if the error remains, open an issue with this message."


def next_step(error: DelegationError, options: Set[str] | None = None) -> str:
    """Return one or two sentences; an error of another package may have its own as `next_step`.

    `options` are those of the command that failed: a sentence about another option is left out.
    """
    own: object = getattr(error, "next_step", None)
    if isinstance(own, str):
        return own
    missing = getattr(error, "error_code", None) if isinstance(error, client.NotFound) else None
    if missing in _OF_POLARIS:
        return _OF_POLARIS[missing]
    of_class = next((step for kind, step in _NEXT_STEPS if isinstance(error, kind)), _OTHERWISE)
    step = _OF_CODES.get(error.code, of_class)
    if options is not None:
        step = _of_command(step, options)
    task_id = getattr(error, "delegation_task_id", None)
    return step.replace(" ID`", f" {task_id}`") if task_id else step


def _of_command(step: str, options: Set[str]) -> str:
    """Return the sentences that a command's user can follow; what another command is called with is in backquotes."""
    sentences = re.split(r"(?<=\.) ", step)
    kept = [one for one in sentences if options >= set(_OPTION.findall(_QUOTED.sub("", one)))]
    return " ".join(kept) or _AGAIN
