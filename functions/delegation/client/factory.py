"""The factory of task executors (Delegation Service proposal, Polaris Changes: Config changes, Code Refactors)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from delegation.client.client import DelegationClient
from delegation.client.dropping import Authorise
from delegation.client.errors import ClientMisconfigured
from delegation.client.executor import DelegatedTaskExecutor, TaskExecutor
from delegation.client.local import LocalTaskExecutor, WholeCatalog
from delegation.client.settings import BASE_PATH, ClientSettings
from delegation.environment import parse_properties

PREFIX: Final = "polaris.delegation-service."
TASK_TYPE: Final = f"{PREFIX}task-type"
ENDPOINT: Final = f"{PREFIX}endpoint"
_VARIABLES: Final = {name: name.upper().replace(".", "_").replace("-", "_") for name in (TASK_TYPE, ENDPOINT)}
"""MicroProfile Config, Environment Variables Mapping Rules: POLARIS_DELEGATION_SERVICE_TASK_TYPE, …_ENDPOINT."""


def executor_properties(file: Path | None = None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Read the properties of a Polaris host: those of its `application.properties`, then of the environment.

    A variable takes precedence, as in Quarkus (All configuration options: ordinals). Raises ClientMisconfigured for a
    file that cannot be read, and for a name that begins like ours and is not known.
    """
    found: dict[str, str] = {}
    if file is not None:
        try:
            found = parse_properties(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ClientMisconfigured(f"{file} cannot be read: {type(error).__name__}") from error
        except ValueError as error:
            raise ClientMisconfigured(f"{file}, {error}") from None
    unknown = sorted(name for name in found if name.startswith(PREFIX) and name not in _VARIABLES)
    if unknown:
        raise ClientMisconfigured(f"{', '.join(unknown)}: not known; there are {TASK_TYPE} and {ENDPOINT}")
    environment = os.environ if environment is None else environment
    given = {name: environment[variable] for name, variable in _VARIABLES.items() if environment.get(variable)}
    return {**found, **given}


def connect_to(base_url: str) -> DelegationClient:
    """Return a client of the API at this address; the caller's settings have its certificate and OAuth2 client.

    Raises ClientMisconfigured.
    """
    return DelegationClient.connect(ClientSettings.at(base_url))


@dataclass(frozen=True, slots=True)
class TaskExecutorFactory:
    """Provides the executor that Polaris' `application.properties` name.

    `connect` returns a client for a base URL, `local` are further arguments of a LocalTaskExecutor; `catalog` and
    `authorise` are those of every executor.
    """

    properties: Mapping[str, str] = field(repr=False)
    _: KW_ONLY
    catalog: WholeCatalog
    realm: str
    authorise: Authorise
    connect: Callable[[str], DelegationClient] = connect_to
    local: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path | None = None, **arguments: Any) -> Self:
        """Return a factory with the properties of a file and of the environment; see `executor_properties`."""
        return cls(executor_properties(file), **arguments)

    def executor(self) -> TaskExecutor:
        """Return the executor; raises ClientMisconfigured for another task type or endpoint, and ExtraMissing."""
        task_type = self.properties.get(TASK_TYPE)
        if task_type == "local":
            return LocalTaskExecutor(self.catalog, self.realm, authorise=self.authorise, **self.local)
        if task_type != "delegated":
            said = "is not set" if task_type is None else f"{task_type!r} is not supported"
            raise ClientMisconfigured(f"{TASK_TYPE}: {said}; set it to `delegated` or `local`")
        client = self.connect(self._base_url())
        return DelegatedTaskExecutor(client, self.catalog, self.realm, authorise=self.authorise)

    def _base_url(self) -> str:
        endpoint = self.properties.get(ENDPOINT, "").rstrip("/")
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ClientMisconfigured(f"{ENDPOINT}: {endpoint!r} is not an http(s) URL")
        # The proposal's example leaves the API's base path out.
        return endpoint if parts.path else f"{endpoint}{BASE_PATH}"
