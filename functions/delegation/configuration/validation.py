"""pydantic's errors as one line for each field, with the setting's name and never its value."""

from pydantic import ValidationError

from delegation.configuration.problems import FieldProblem
from delegation.configuration.settings import name_of_variable


def problems_of(error: ValidationError) -> list[FieldProblem]:
    """Return what is wrong with each field, without its value."""
    return [
        FieldProblem(
            ".".join(name_of_variable(str(step)) for step in each["loc"]) or "all settings", _reason(each["msg"])
        )
        for each in error.errors(include_input=False, include_url=False)
    ]


def _reason(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return "is not set" if text == "Field required" else text[:1].lower() + text[1:]
