"""A task type's options and the form of its requests. One table of options makes the checks of requests and properties,
and their descriptions. A caller sets an option in `operation_parameters.properties`, an operator as a property of the
service. The operator's value is the loosest that callers may choose; a stricter one is always allowed. The API uses the
form, which is implemented beside the type."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Protocol

from delegation.misspellings import did_you_mean
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError, printable

PLACE: Final = "operation_parameters.properties"
DRY_RUN: Final = "dry-run"
"""The option of every type that can be planned: the task shows what it would do."""
DRY_RUN_SPELLINGS: Final = (DRY_RUN, "dryRun")
CALLBACK: Final = "callback"
"""The option that names the callback to send when the task ends; every type has it."""
_CALLBACK_NAME: Final = "[a-z][a-z0-9-]{0,31}"
_LONGEST_NAME: Final = 64


class SetBy(Enum):
    CALLER = "caller"
    BOTH = "caller, within the operator's limit"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Argument:
    """A command's argument for an option: `--flag`, by default the option's name, and its help. An `int` is at least
    `least`; a `bool` is a flag without a value; a list is joined."""

    help: str
    metavar: str | None = None
    flag: str | None = None
    type: Any = str
    least: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    `values` are all allowed values: strictest first if callers and the operator both set it, otherwise the default
    first; "" lets the service choose. Free text has a `pattern` instead, described by `expected`. `setting` is the
    operator's property below the type's prefix, by default the option's name; `loosest` is its default. A request
    without the option gets `default`, else the operator's value; `default_setting` is the property that sets `default`.
    `meaning` and `default_meaning` describe the properties, `described` the option in the API. With an `argument` it is
    also an option of the submitting command.
    """

    name: str
    by: SetBy
    values: tuple[str, ...] = ()
    setting: str | None = None
    loosest: str | None = None
    default: str | None = None
    default_setting: str | None = None
    pattern: str | None = None
    expected: str = ""
    meaning: str = ""
    default_meaning: str = ""
    described: str | None = None
    argument: Argument | None = None

    @property
    def property_name(self) -> str:
        return self.setting or self.name

    @property
    def spellings(self) -> tuple[str, ...]:
        """The names that a request may use: the option's name, also in camel case."""
        first, *rest = self.name.split("-")
        return tuple(dict.fromkeys((self.name, "".join((first, *(word[:1].upper() + word[1:] for word in rest))))))

    def is_looser(self, value: str, than: str) -> bool:
        return self.values.index(value) > self.values.index(than)


def text_option(
    name: str, pattern: str, expected: str, described: str | None = None, argument: Argument | None = None
) -> Option:
    """Return an option of callers with any value of a pattern."""
    return Option(
        name=name, by=SetBy.CALLER, pattern=pattern, expected=expected, described=described, argument=argument
    )


CALLBACK_OPTION: Final = text_option(
    CALLBACK,
    _CALLBACK_NAME,
    "a name of lower-case letters, digits and hyphens",
    "The name of a configured callback, which is called when the task ends.",
)
"""The option `callback`, which is the same for every type."""
DRY_RUN_OPTION: Final = Option(name=DRY_RUN, by=SetBy.CALLER, values=("false", "true"))


class InvalidOption(DelegationError):
    code = "INVALID_REQUEST"

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"{PLACE}.{name}: must be {expected}")
        self.name = name


def option_unknown(name: str, known: Iterable[str]) -> DelegationError:
    shown = printable(name, _LONGEST_NAME)
    return DelegationError(
        f"{PLACE}.{shown}: is not an option of this operation; {did_you_mean(name, known)}", code="INVALID_REQUEST"
    )


def option_not_allowed(name: str, value: str, loosest: str) -> DelegationError:
    return DelegationError(
        f"{PLACE}.{name}: {value} is looser than the operator's limit {loosest}. Send {loosest} or a stricter value",
        code="PROPERTY_NOT_ALLOWED",
    )


def callback_not_allowed(name: str, known: Collection[str]) -> DelegationError:
    names = ", ".join(sorted(known)) or "none"
    return DelegationError(
        f"{PLACE}.{CALLBACK}: the operator has not configured a callback {name} (configured: {names}). Ask the "
        f"operator to set delegation.notifications.callback.{name}",
        code="PROPERTY_NOT_ALLOWED",
    )


def callback_of(properties: Mapping[str, str], known: Collection[str]) -> str | None:
    """Return the callback that a request picks. Raises InvalidOption or DelegationError (PROPERTY_NOT_ALLOWED)."""
    name = properties.get(CALLBACK)
    if name is None:
        return None
    checked_text(CALLBACK_OPTION, name)
    if name not in known:
        raise callback_not_allowed(name, known)
    return name


def checked_text(option: Option, text: str) -> str:
    """Return a value that matches the option's pattern. Raises InvalidOption."""
    if option.pattern is not None and not re.fullmatch(option.pattern, text):
        raise InvalidOption(option.name, option.expected)
    return text


@dataclass(frozen=True, slots=True)
class OperatorProperty:
    """A property of the service: its name, its default, and a sentence about it."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SetLimits:
    """What the operator set: the loosest allowed `choices`, the values of requests without the option (`silent`), and
    what is `fixed`."""

    choices: Mapping[str, str]
    silent: Mapping[str, str]
    fixed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of one task type. Its properties start with `prefix`; `others` are properties that are no option. Of
    an `exclusive` pair the first must be absent if the second is true."""

    prefix: str
    options: tuple[Option, ...]
    others: frozenset[str] = field(default_factory=frozenset)
    exclusive: tuple[tuple[str, str], ...] = ()

    def by(self, by: SetBy) -> Sequence[Option]:
        return [option for option in self.options if option.by is by]

    def canonical(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of a request by the table's names. Raises DelegationError (INVALID_REQUEST)."""
        names = {
            spelling: option.name
            for option in self.options
            if option.by is not SetBy.OPERATOR
            for spelling in option.spellings
        }
        canonical: dict[str, str] = {}
        for given, value in properties.items():
            name = names.get(given)
            if name is None:
                raise option_unknown(given, names.values())
            if name in canonical:
                raise InvalidOption(name, "given once, but the request has it in two spellings")
            canonical[name] = value
        return canonical

    def limits(self, properties: Mapping[str, str] | None = None) -> SetLimits:
        """Read the properties with the prefix; ignore all others. Raises InvalidProperty."""
        limited, fixed = self.by(SetBy.BOTH), self.by(SetBy.OPERATOR)
        chosen = {option.name: option.loosest or option.values[-1] for option in limited}
        silent = {option.name: option.default for option in limited if option.default is not None}
        values = {option.name: option.values[0] for option in fixed}
        targets: dict[str, tuple[dict[str, str], Option]] = {
            **{option.property_name: (chosen, option) for option in limited},
            **{option.default_setting: (silent, option) for option in limited if option.default_setting is not None},
            **{option.property_name: (values, option) for option in fixed},
        }
        for full, value in (properties or {}).items():
            name = full.removeprefix(self.prefix)
            if name == full or name in self.others:
                continue
            if name not in targets:
                raise InvalidProperty(full, "is not a property of this service")
            target, option = targets[name]
            if value not in option.values:
                raise InvalidProperty(full, f"{value!r} is not one of {', '.join(option.values)}")
            target[option.name] = value
        self._check_silent(chosen, silent)
        return SetLimits(chosen, silent, values)

    def default(self, option: Option, limits: SetLimits) -> str:
        if option.by is SetBy.BOTH:
            return limits.silent.get(option.name, limits.choices[option.name])
        return option.values[0]

    def chosen(self, properties: Mapping[str, str], limits: SetLimits, *, accepted: bool = False) -> dict[str, str]:
        """Return the value of every option that callers may set. Raises InvalidOption, DelegationError
        (PROPERTY_NOT_ALLOWED). If the request was already `accepted`, today's setting replaces a looser value. An
        option with a pattern is absent unless the request has it."""
        values = {
            option.name: self._value(option, properties, option.values[0])
            for option in self.by(SetBy.CALLER)
            if option.values
        }
        for option in self.by(SetBy.BOTH):
            value, loosest = self._value(option, properties, self.default(option, limits)), limits.choices[option.name]
            if option.is_looser(value, loosest):
                if not accepted:
                    raise option_not_allowed(option.name, value, loosest)
                value = loosest
            values[option.name] = value
        for option in self.by(SetBy.CALLER):
            if option.pattern is not None and option.name != CALLBACK and option.name in properties:
                values[option.name] = checked_text(option, properties[option.name])
        for absent, where in self.exclusive:
            if absent in values and values[where] == "true":
                raise InvalidOption(absent, f"absent when {where} is true")
        return values

    def schema(self) -> dict[str, Any]:
        """Return the members of `properties` as JSON Schema, the default first."""
        limits = self.limits()
        members: dict[str, Any] = {}
        for option in (*self.by(SetBy.BOTH), *self.by(SetBy.CALLER)):
            if option.pattern is None:
                values = (self.default(option, limits), *option.values)
                members[option.name] = {"type": "string", "enum": list(dict.fromkeys(each for each in values if each))}
            else:
                members[option.name] = {"type": "string", "pattern": f"^{option.pattern}$"}
            if option.described is not None:
                members[option.name]["description"] = option.described
        return members

    def settings(self) -> Iterable[OperatorProperty]:
        for option in self.options:
            if option.default_setting is not None and option.default is not None:
                yield OperatorProperty(self.prefix + option.default_setting, option.default, option.default_meaning)
            if option.by is not SetBy.CALLER:
                default = option.loosest if option.by is SetBy.BOTH else option.values[0]
                yield OperatorProperty(self.prefix + option.property_name, default or option.values[-1], option.meaning)

    def _value(self, option: Option, properties: Mapping[str, str], default: str) -> str:
        value = properties.get(option.name, default)
        if value not in option.values or (option.name in properties and not value):
            expected = [value for value in option.values if value]
            raise InvalidOption(option.name, ("one of " if len(expected) > 1 else "") + ", ".join(expected))
        return value

    def _check_silent(self, choices: Mapping[str, str], silent: Mapping[str, str]) -> None:
        """Raise InvalidProperty for a default that an explicit request could not choose."""
        for option in self.by(SetBy.BOTH):
            if option.default_setting is None:
                continue
            value, loosest = silent[option.name], choices[option.name]
            if option.is_looser(value, loosest):
                raise InvalidProperty(
                    self.prefix + option.default_setting,
                    f"{value!r} is looser than {self.prefix}{option.property_name}, which is {loosest!r}. Make the two "
                    "settings agree",
                )


def not_waited_for(operation: str) -> DelegationError:
    return DelegationError(
        f"{operation} does not run synchronously. Send the request to POST /v1/tasks, and follow the task",
        code="INVALID_REQUEST",
    )


@dataclass(frozen=True, slots=True, eq=False)
class RequestSources:
    """What reading a request may need of the deployment. `properties` are the service's; `callbacks` returns the names
    that a request may pick. A task with more than `small_files` files is queued as large. `catalog` is called for a
    request without the loaded table; `check_catalog` raises for one whose tables the service cannot delete. `clock`
    returns UTC."""

    realm: str
    properties: Mapping[str, str]
    callbacks: Callable[[], Collection[str]]
    catalog: Callable[[], Any]
    small_files: int = 1_000
    clock: Callable[[], datetime] = utc_now
    check_catalog: Callable[[str], object] = bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTask:
    """The task that a request is for, and how it relates to the stored task with its id. Two requests for the same work
    have the same id. `task_type` is the stored one, which may differ from the one in the request. Without `traits`
    those of the payload apply, without `deadline` the properties. `obstacle` returns why the request conflicts with a
    task, and what to do next; None if it can attach or start another run. `replays` is whether a SUCCESS has done the
    same work, `resumes` whether an ended task continues where it stopped."""

    task_id: str
    task_type: str
    payload: str
    obstacle: Callable[[Task], str | None]
    replays: Callable[[Task], bool]
    resumes: Callable[[Task], bool]
    payload_version: int = 1
    traits: Traits | None = None
    callback: str | None = None
    deadline: timedelta | None = None


class RequestForm(Protocol):
    """Reads the requests for tasks of one type. Without state."""

    @property
    def operations(self) -> Sequence[str]:
        """The operation names (`operation_type`) in requests of this form."""

    @property
    def body(self) -> type[Any]:
        """The model of a body, a `wire.requests.ReceivedBody`."""

    @property
    def options(self) -> OptionTable:
        """The options that requests and the operator may set."""

    @property
    def running(self) -> str:
        """What a command shows while it waits for a table (`{}`)."""

    @property
    def deletes(self) -> bool:
        """Whether the table's files are gone afterwards: a command then asks first, and shows what remains."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller may wait for the outcome in the call that submits."""

    @property
    def waits_with_table(self) -> bool:
        """Whether the request of a waiting caller must include the loaded table."""

    def request(self, wanted: Any, *, synchronous: bool) -> Mapping[str, Any]:
        """Return the body to send for a `wire.requests.TableRequest`, whose `table` is loaded if needed."""

    def check(self, properties: Mapping[str, str]) -> None:
        """Raise InvalidProperty for an unknown or wrong property of the service that limits such requests."""

    def refuse_waiting(self, body: Any) -> None:
        """Raise the error for a request whose caller cannot wait for the outcome."""

    def asked(self, body: Any, document: Mapping[str, Any], sources: RequestSources) -> AskedTask:
        """Return what a valid body requests; `document` is the body as JSON. Raises the errors of its options."""
