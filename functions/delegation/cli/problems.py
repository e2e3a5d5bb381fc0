"""One table: what a person does next about an error."""

from typing import Final

from delegation.client import errors as client
from delegation.errors import DelegationError, GuardRefused
from delegation.operations.purge import errors as purge
from delegation.persistence import errors as persistence
from delegation.polaris import errors as polaris
from delegation.tasks import errors as tasks
from delegation.tasks.life import policy
from delegation.worksets.errors import FilesNotDeleted

_LIST: Final = "`delegation tasks list` shows the tasks there are."
_REFS: Final = "`delegation persistence refs list` shows references, their recent heads and which are complete."
_REPEAT: Final = "Run the same command again with the same --key: it attaches to what is under way."

# The first class that fits is taken, so a subclass stands before its base.
_NEXT_STEPS: Final[tuple[tuple[type[DelegationError], str], ...]] = (
    (client.ClientMisconfigured, "Correct the setting it names (docs/command.md lists them)."),
    (client.ServiceUnreachable, "Is the service up? `delegation local up` starts one on this machine."),
    (
        client.TlsRefused,
        "Check the certificate, its key and the authority; a restarted local stack has new ones in its stack.json.",
    ),
    (client.TokenUnavailable, "Check the token URL, the client id, the secret and the scope."),
    (client.AnswerLost, f"It may have been accepted. {_REPEAT}"),
    (client.IdempotencyWindowExpired, f"Look before sending it again: {_LIST}"),
    (client.PurgedNotDropped, "Drop the table from the catalog without purge; its files are gone."),
    (client.IdempotencyKeyConflict, "Leave --key out, or use one that was never used."),
    (client.InvalidRequest, "Correct the field that the message names."),
    (client.NotAuthenticated, "Check that the token issuer is the one the deployment trusts, and the clock."),
    (
        client.NotPermitted,
        "Check the realm, the scope of the token and which client certificate the deployment admits.",
    ),
    (client.NotFound, f"Check the name or id. {_LIST}"),
    (client.Conflict, f"Something about the table stands against it. {_LIST}"),
    (client.RequestStillRunning, "`delegation tasks watch ID` follows it."),
    (
        client.TaskFailed,
        "`delegation tasks history ID` shows each attempt; the same submit goes on where it stopped.",
    ),
    (client.ServiceFailed, f"Try again in a moment. {_REPEAT}"),
    (client.DelegationClientError, "Check that the address is the delegation service's, base path included."),
    (persistence.ReferenceNotFound, _REFS),
    (persistence.HeadNotListed, _REFS),
    (persistence.HeadIncomplete, f"Take another head. {_REFS}"),
    (persistence.StaleObject, f"Somebody commits to it: look again. {_REFS}"),
    (persistence.BackendUnavailable, "Check the tables' names, the region and your AWS credentials."),
    (purge.PlanOfAnotherTable, "Name the place of this table's own plan with --plan, or an empty one."),
    (GuardRefused, "The table is whole; docs/architecture.md §5 says what each guard wants."),
    (
        FilesNotDeleted,
        "The full list lies beside the plan, below `failed`; mend the cause and run the same command again.",
    ),
    (tasks.TaskNotFound, f"Check the id. {_LIST}"),
    (policy.InvalidProperty, "Correct the property that it names."),
    (tasks.MalformedRecord, "A newer release wrote it: use that release's command."),
    (tasks.StoreUnavailable, "Check the table's name, the endpoint, the region and your AWS credentials."),
    (
        polaris.NoSuchTable,
        "Check the name: CATALOG.NAMESPACE.TABLE; a name that holds a dot goes between `backquotes`.",
    ),
    (polaris.NoSuchNamespace, "Check the namespace; levels are separated by dots."),
    (polaris.NoSuchCatalog, "Check the catalog, the first part of the name."),
    (polaris.TableMetadataMissing, "The table's files are gone already; drop it from the catalog without purge."),
    (polaris.PolarisForbidden, "Ask for the privilege in Polaris (docs/architecture.md, Privileges)."),
    (polaris.PolarisError, "Check Polaris' address and your credential there."),
)
_OTHERWISE: Final = "Run it again; if it stays, open an issue with this message."


def next_step(error: DelegationError) -> str:
    """What to do about it, one sentence or two; an error of another package may bring its own as `next_step`."""
    own: object = getattr(error, "next_step", None)
    if isinstance(own, str):
        return own
    step = next((step for kind, step in _NEXT_STEPS if isinstance(error, kind)), _OTHERWISE)
    task_id = getattr(error, "delegation_task_id", None)
    return step.replace(" ID`", f" {task_id}`") if task_id else step
