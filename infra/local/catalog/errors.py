"""The catalog's error answers, with the messages of Polaris (Iceberg REST specification, ErrorModel)."""

from typing import Any

from infra.local.errors import LocalStackError


class RestError(LocalStackError):
    """An error answer: the HTTP `status` and the `type` of Iceberg's exception."""

    code = "LOCAL_CATALOG"

    def __init__(self, status: int, type_: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.type = type_

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.type, "code": self.status}}


def no_such_table(name: str) -> RestError:
    return RestError(404, "NoSuchTableException", f"Table does not exist: {name}")


def no_such_namespace(name: str) -> RestError:
    return RestError(404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")


def already_exists(what: str) -> RestError:
    return RestError(409, "AlreadyExistsException", f"{what} already exists")


def commit_failed(reason: str) -> RestError:
    return RestError(409, "CommitFailedException", reason)


def bad_request(reason: str) -> RestError:
    return RestError(400, "BadRequestException", reason)


def forbidden(principal: str, operation: str) -> RestError:
    return RestError(403, "ForbiddenException", f"Principal '{principal}' is not authorized for op {operation}")


def location_missing(location: str) -> RestError:
    return RestError(400, "NotFoundException", f"Location does not exist: {location}")
