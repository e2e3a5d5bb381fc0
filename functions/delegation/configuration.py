"""A caller's settings: the environment over a profile of the configuration file. The command's flags override both."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one setting, without its value."""

    setting: str
    reason: str


class SettingsInvalid(DelegationError):
    """Settings of a file, a profile or the environment are missing or wrong; `problems` has one entry for each.
    `next_step` is a sentence for the person who set them."""

    code = "SETTINGS_INVALID"
    exit_status = 2
    """The command's exit status for a misuse."""

    def __init__(self, where: str, problems: Iterable[FieldProblem], next_step: str) -> None:
        self.problems = tuple(problems)
        self.next_step = next_step
        lines = "\n".join(f"  {problem.setting}: {problem.reason}" for problem in self.problems)
        count = f"{len(self.problems)} settings are" if len(self.problems) != 1 else "1 setting is"
        super().__init__(f"{where}: {count} wrong\n{lines}")


CONFIG_VARIABLE: Final = "DELEGATION_CONFIG"
PROFILE_VARIABLE: Final = "DELEGATION_PROFILE"
DEFAULT_STACK: Final = Path(".local/stack.json")
"""Where `make up` describes the system that it started, in the working directory."""
_DEFAULT_PROFILE: Final = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its name in a profile, its meaning, and whether it is a secret or the path of a file."""

    name: str
    meaning: str
    secret: bool = False
    is_path: bool = False

    @property
    def variable(self) -> str:
        """The environment variable, which overrides the profile."""
        return f"DELEGATION_{self.name.upper()}"


SETTINGS: Final = (
    Setting("edge_url", "the service's address, with its base path /delegation-service/api"),
    Setting("ca_cert", "PEM file of the CA that issued the service's certificate", is_path=True),
    Setting("client_cert", "PEM file of the client certificate", is_path=True),
    Setting("client_key", "PEM file of the client certificate's key", is_path=True),
    Setting("token_url", "token endpoint of the OAuth2 issuer"),
    Setting("client_id", "the OAuth2 client"),
    Setting("client_secret", "the OAuth2 client's secret", secret=True),
    Setting("scope", "the scope to request"),
    Setting("realm", "the Polaris realm that the deployment serves"),
    Setting(
        "operator_cert", "PEM file of the operator's certificate, instead of client_cert for `tasks`", is_path=True
    ),
    Setting("operator_key", "PEM file of the operator certificate's key", is_path=True),
    Setting("operator_client_id", "the operator's OAuth2 client"),
    Setting("operator_client_secret", "the secret of the operator's OAuth2 client", secret=True),
    Setting("operator_scope", "the operator's scope"),
    Setting("polaris_url", "the catalog's URI, as in other Iceberg clients"),
    Setting("gateway_url", "the catalog's URI through the gateway, for `drop`"),
    Setting("polaris_credential", "id:secret of a principal that may read the tables", secret=True),
    Setting("polaris_scope", "the scope of that principal"),
    Setting("polaris_service_credential", "id:secret of the service's principal, for `doctor`", secret=True),
    Setting("polaris_admin_credential", "id:secret of an administrator, for `polaris setup` and `doctor`", secret=True),
    Setting(
        "task_store", "where tasks are stored: `table` (the task table) or `persistence` (the persistence's two tables)"
    ),
    Setting("tasks_table", "the task table"),
    Setting("references_table", "the table of the reference index, for `references` and `doctor`"),
    Setting("idempotency_table", "the table of idempotency records, for `doctor`"),
    Setting("plan_bucket", "the bucket of plans and receipts, for `orphans show|restore` and `doctor`"),
    Setting("queue_url", "the dispatch queue, for `doctor`"),
    Setting("objects_table", "the objects table of the persistence"),
    Setting("persistence_references_table", "the references table of the persistence"),
    Setting("stack", "the stack.json of a local stack", is_path=True),
)
_BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a setting and where it was found; `repr` shows no secret."""

    text: str = field(repr=False)
    source: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file: its profiles, and the default one."""

    path: Path
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    default: str = _DEFAULT_PROFILE

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """Read a TOML file with tables `[profiles.NAME]` of texts, and optionally `profile = "NAME"`. SettingsInvalid
        names every wrong field and no value."""
        document = _parsed(path)
        problems = [
            FieldProblem(name, "is neither `profile` nor a table [profiles.NAME]") for name in _unknown(document)
        ]
        profiles: dict[str, Mapping[str, str]] = {}
        tables = document.get("profiles", {})
        if not isinstance(tables, dict):
            problems.append(FieldProblem("profiles", "must consist of tables [profiles.NAME]"))
            tables = {}
        for name, table in tables.items():
            profiles[name] = _profile(path, name, table, problems)
        default = document.get("profile", _DEFAULT_PROFILE)
        if not isinstance(default, str) or ("profile" in document and default not in profiles):
            problems.append(FieldProblem("profile", f"must name one of the file's profiles ({_listed(profiles)})"))
        if problems:
            raise SettingsInvalid(str(path), problems, "Correct the file. `delegation config check` reads it again.")
        return cls(path, profiles, default)


@dataclass(frozen=True, slots=True)
class CallerSettings:
    """The settings in force: those of the environment, else those of the profile; `profile` is None without one."""

    file: ConfigFile
    profile: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()
    """Settings whose variable is set and empty, as by `NAME=$UNSET`; except addresses, they count as not set."""

    @classmethod
    def load(cls, profile: str | None = None, environ: Mapping[str, str] | None = None) -> "CallerSettings":
        """Return the settings with the named profile, else that of DELEGATION_PROFILE, else the file's own.

        Raises SettingsInvalid, also for a named profile or file that does not exist.
        """
        environ = os.environ if environ is None else environ
        file = _file_of(environ)
        named = profile or environ.get(PROFILE_VARIABLE) or None
        if named is not None and named not in file.profiles:
            reason = f"the file has no profile {named} (profiles: {_listed(file.profiles)})"
            raise SettingsInvalid(str(file.path), [FieldProblem("--profile", reason)], "Name a profile of the file.")
        chosen = named or (file.default if file.default in file.profiles else None)
        values = {name: Value(text, f"profile {chosen}") for name, text in file.profiles.get(chosen or "", {}).items()}
        for setting in SETTINGS:
            if text := environ.get(setting.variable):
                values[setting.name] = Value(text, setting.variable)
        return cls(
            file, chosen, values, frozenset(setting.name for setting in SETTINGS if environ.get(setting.variable) == "")
        )

    def address(self, name: str) -> str | None:
        """Return an address, None if it is not set. Raises SettingsInvalid for an empty variable, because without an
        address another system would be called."""
        if name in self.empty:
            problem = FieldProblem(name_of_variable(_BY_NAME[name].variable), "is set and empty")
            raise SettingsInvalid("the environment", [problem], "Set the address, or remove the variable.")
        return self.get(name)

    def get(self, name: str) -> str | None:
        value = self.values.get(_BY_NAME[name].name)
        return None if value is None else value.text

    def variables(self) -> dict[str, str]:
        return {_BY_NAME[name].variable: value.text for name, value in self.values.items()}

    def exposed_secrets(self) -> list[str]:
        """Return the profiles that hold a secret, if other users may read the file."""
        if not self.file.path.is_file() or not self.file.path.stat().st_mode & 0o077:
            return []
        return [
            name for name, profile in self.file.profiles.items() if any(_BY_NAME[setting].secret for setting in profile)
        ]


def name_of_variable(variable: str) -> str:
    """Return how a message names a setting: its name in a profile and its variable."""
    name = variable.removeprefix("DELEGATION_").lower()
    return f"{name} ({variable})" if name in _BY_NAME else variable


def _file_of(environ: Mapping[str, str]) -> ConfigFile:
    named = environ.get(CONFIG_VARIABLE)
    path = Path(named).expanduser() if named else Path.home() / ".config" / "delegation" / "config.toml"
    return ConfigFile.read(path) if named or path.is_file() else ConfigFile(path)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = FieldProblem(CONFIG_VARIABLE, f"{path} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        problem = FieldProblem(str(path), "is not UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        # The parser's message has the place and a character, never a whole value.
        problem = FieldProblem(str(path), f"is not TOML: {error}")
    raise SettingsInvalid(
        str(path), [problem], "Correct the file. The documentation of the command has an example."
    ) from None


def _unknown(document: Mapping[str, Any]) -> list[str]:
    return [name for name in document if name not in {"profile", "profiles"}]


def _profile(path: Path, name: str, table: object, problems: list[FieldProblem]) -> Mapping[str, str]:
    """Return the settings of a profile, with paths relative to the file; add what is wrong to `problems`."""
    if not isinstance(table, dict):
        problems.append(FieldProblem(f"profiles.{name}", "is not a table"))
        return {}
    settings: dict[str, str] = {}
    for key, value in table.items():
        where = f"profiles.{name}.{key}"
        setting = _BY_NAME.get(key)
        if setting is None:
            near = get_close_matches(key, _BY_NAME, n=1)
            problems.append(FieldProblem(where, "is not a setting" + (f"; did you mean {near[0]}?" if near else "")))
        elif not isinstance(value, str) or not value:
            problems.append(FieldProblem(where, "must be a string that is not empty"))
        else:
            settings[key] = str(path.parent / Path(value).expanduser()) if setting.is_path else value
    return settings


def _listed(profiles: Mapping[str, object]) -> str:
    return ", ".join(profiles) or "none"


def problems_of(error: "ValidationError") -> list[FieldProblem]:
    return [
        FieldProblem(
            ".".join(name_of_variable(str(step)) for step in each["loc"]) or "all settings", _reason(each["msg"])
        )
        for each in error.errors(include_input=False, include_url=False)
    ]


def _reason(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return "is not set" if text == "Field required" else text[:1].lower() + text[1:]
