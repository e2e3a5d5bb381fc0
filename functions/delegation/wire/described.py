"""What the API's document has of a type beyond what pydantic derives; nothing here changes how values are checked."""

from typing import Annotated, Any, Final

from pydantic import Field

COMPONENT: Final = "x-component"
"""The member by which infra.api_schemas gives a schema a place and a name of its own in the document."""


def described(**keywords: Any) -> Any:
    """Return an annotation that adds JSON Schema keywords, such as the pattern that a validator checks in Python."""
    return Field(json_schema_extra=keywords)


def component(name: str, description: str, **keywords: Any) -> Any:
    """Return an annotation that makes the type's schema a named component of the document."""
    return Field(description=description, json_schema_extra={COMPONENT: name, **keywords})


UUID_PATTERN: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
TaskId = Annotated[str, component("TaskId", "The id of a task.", format="uuid", pattern=UUID_PATTERN)]
Count = Annotated[int, Field(ge=0), described(format="int64")]
"""A number of files or bytes; they exceed 32 bits."""
