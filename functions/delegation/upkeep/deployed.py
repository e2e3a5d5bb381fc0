"""The policies of a deployment: those of its policy file for the catalogs that it names, of the catalogs for others."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from delegation.polaris.policies import ApplicablePolicy, PolicyTarget
from delegation.upkeep.policy_file import LONGEST_FILE, PolicyFile, PolicyFileInvalid

PACKAGED: Final = "delegation-policies.json"
"""The name of the policy file in a deployment's package, beside `delegation`."""


class AppliesPolicies(Protocol):
    """The policies of catalogs; PolicyClient is one and documents what it raises."""

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]: ...


@dataclass(slots=True)
class StoredPolicyFile:
    """The policy file at a path, read again when it changes; a worker runs for months."""

    path: Path
    _seen: tuple[int, int] | None = field(default=None, init=False)
    _file: PolicyFile | None = field(default=None, init=False)

    def __call__(self) -> PolicyFile:
        """Return the policies of the file as it is now; raises PolicyFileInvalid, also for a file that is not there."""
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size)
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
    """`PolicySource` of a deployment; `file` is None where it has no policy file.

    While the file cannot be read nothing is executed, in no catalog: which ones it names is not known.
    """

    catalogs: AppliesPolicies
    file: Callable[[], PolicyFile] | None = None

    def applicable(self, target: PolicyTarget, type_: str | None = None) -> list[ApplicablePolicy]:
        """Return what applies to a target; raises PolicyFileInvalid and what the catalog's source raises."""
        file = None if self.file is None else self.file()
        if file is not None and target.catalog in file.catalogs:
            return file.applicable(target, type_)
        return self.catalogs.applicable(target, type_)
