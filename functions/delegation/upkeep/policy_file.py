"""The deployment's policy file, for catalogs without an API for policies."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError

from delegation.polaris.policies import ApplicablePolicy, PolicyTarget, StoredPolicy
from delegation.upkeep.rules.model import PolicyInvalid, PolicyType, problems_in
from delegation.upkeep.rules.resolve import check_content
from polaris_common.errors import DelegationError, ErrorScope, printable

LONGEST_FILE: Final = 1_048_576
"""Characters."""
_MOST: Final = 1_000
_Text = Annotated[StrictStr, Field(min_length=1, max_length=1_000)]
_Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")]


class PolicyFileInvalid(DelegationError):
    """The policy file cannot be read. Nothing is executed for its catalogs."""

    code = "POLICY_FILE_INVALID"
    scope = ErrorScope.CATALOG


class _Target(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    catalog: _Text
    namespace: tuple[_Text, ...] = ()
    table: _Text | None = None

    def target(self) -> PolicyTarget:
        if self.table is not None and not self.namespace:
            raise PolicyFileInvalid(f"the table {printable(self.table)} has no namespace")
        return PolicyTarget(self.catalog, self.namespace, self.table)


class _FilePolicy(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: _Name
    type: PolicyType
    content: dict[str, Any]
    attached: Annotated[tuple[_Target, ...], Field(max_length=_MOST)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    format: Literal[1]
    policies: Annotated[tuple[_FilePolicy, ...], Field(max_length=_MOST)]


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """Policies by place and type. Those of a catalog or namespace are inherited. A catalog in the file has no other
    policies, and its API is not called."""

    attached: Mapping[tuple[PolicyTarget, PolicyType], StoredPolicy]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a file. A policy's content is read where it applies. Raises PolicyFileInvalid."""
        if len(text) > LONGEST_FILE:
            raise PolicyFileInvalid(f"the policy file has {len(text):,} characters, more than {LONGEST_FILE:,}")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PolicyFileInvalid(f"the policy file is not JSON: {printable(str(error))}") from None
        try:
            parsed = _File.model_validate(document)
        except ValidationError as error:
            raise PolicyFileInvalid(f"the policy file is invalid: {problems_in(error)}") from None
        attached: dict[tuple[PolicyTarget, PolicyType], StoredPolicy] = {}
        names: set[str] = set()
        for described in parsed.policies:
            if described.name in names:
                raise PolicyFileInvalid(f"the policy file has two policies named {described.name}")
            names.add(described.name)
            policy = StoredPolicy(
                described.type.value, described.name, json.dumps(described.content), version=parsed.format
            )
            for place in described.attached:
                target = place.target()
                other = attached.setdefault((target, described.type), policy)
                if other.name != described.name:
                    both = f"{other.name} and {described.name} of type {described.type.value}"
                    text = f"the policies {both} are attached to {target}"
                    raise PolicyFileInvalid(f"{printable(text, 1_000)}; only one policy of a type may be attached")
        return cls(attached)

    @property
    def catalogs(self) -> frozenset[str]:
        return frozenset(target.catalog for target, _ in self.attached)

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]:
        """Return the nearest policy for a target, of each type or of one, as Polaris does."""
        levels = [target.namespace[:length] for length in range(len(target.namespace) + 1)]
        path = [PolicyTarget(target.catalog, level) for level in levels]
        path += [target] if target.table is not None else []
        nearest = {
            policy_type: (place, self.attached[place, policy_type])
            for place in path
            for policy_type in PolicyType
            if (place, policy_type) in self.attached and type_ in {None, policy_type.value}
        }
        return [
            ApplicablePolicy(policy, (), inherited=place != target, of_file=True) for place, policy in nearest.values()
        ]

    def check(self) -> None:
        """Raise PolicyFileInvalid if a policy's content has no effect: a deployed policy must be executable."""
        for (target, type_), policy in self.attached.items():
            try:
                check_content(type_, policy.content)
            except PolicyInvalid as error:
                where = printable(f"the policy {policy.name}, attached to {target},", 1_000)
                raise PolicyFileInvalid(f"{where} has no effect: {error}") from error


PACKAGED: Final = "delegation-policies.json"
"""The policy file's name in a deployment's package, beside `delegation`."""


class PolicySource(Protocol):
    """Returns the applicable policies: PolicyClient, which documents the errors, or DeployedPolicies."""

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]: ...


@dataclass(slots=True)
class StoredPolicyFile:
    """The policy file at a path, read again when it changes, because a worker runs for months."""

    path: Path
    _seen: tuple[int, int] | None = field(default=None, init=False)
    _file: PolicyFile | None = field(default=None, init=False)

    def __call__(self) -> PolicyFile:
        """Return the file's current policies. Raises PolicyFileInvalid, also for a missing file."""
        try:
            status = self.path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if self._file is None or seen != self._seen:
                with self.path.open(encoding="utf-8") as file:
                    self._file = PolicyFile.parse(file.read(LONGEST_FILE + 1))
                self._seen = seen
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise PolicyFileInvalid(f"the policy file {self.path} cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise PolicyFileInvalid(f"the policy file {self.path} is not UTF-8") from error
        return self._file


@dataclass(frozen=True, slots=True)
class DeployedPolicies:
    """PolicySource of a deployment; `file` is None without a policy file. While the file cannot be read, nothing is
    executed in any catalog, because the catalogs that it names are unknown."""

    catalogs: PolicySource
    file: Callable[[], PolicyFile] | None = None

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]:
        """Return a target's policies. Raises PolicyFileInvalid and the errors of the catalog's source."""
        file = None if self.file is None else self.file()
        if file is not None and target.catalog in file.catalogs:
            return file.applicable(target, type_)
        return self.catalogs.applicable(target, type_)
