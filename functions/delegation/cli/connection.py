"""How a command reaches the service, its task table and the catalog: by a stack.json or the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from delegation.cli.errors import BadConnection, NotConnected, TaskTableUnknown
from delegation.client.client import DelegationClient
from delegation.client.settings import ClientSettings
from delegation.dynamodb import client_config
from delegation.polaris.client import PolarisClient
from delegation.polaris.tokens import DEFAULT_SCOPE, ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.timestamps import utc_now

DEFAULT_STACK = Path(".local/stack.json")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# An emulator accepts any key, so no real one is sent to it. The local stack creates its tables in this region.
_EMULATED: Final[Mapping[str, str]] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "operator",
    "aws_secret_access_key": "operator",
}
_BRIEF: Final = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})
_TASK_KEY: Final = [
    {"AttributeName": "task_id", "KeyType": "HASH"},
    {"AttributeName": "version", "KeyType": "RANGE"},
]


class Stack(BaseModel):
    """A running local stack, as `delegation local up` describes it in stack.json; its paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    edge_url: str
    ca_cert: Path
    client_cert: Path
    client_key: Path
    token_url: str
    client_id: str
    client_secret: SecretStr
    scope: str
    operator_cert: Path | None = None
    operator_key: Path | None = None
    operator_client_id: str | None = None
    operator_client_secret: SecretStr | None = None
    operator_scope: str | None = None
    realm: str
    aws_endpoint: str
    dynamodb_endpoint: str
    s3_endpoint: str
    polaris_url: str
    polaris_credential: SecretStr
    polaris_scope: str
    polaris_root_credential: SecretStr | None = None
    polaris_public_key: str | None = None
    warehouse: str

    @classmethod
    def read(cls, path: Path) -> "Stack":
        """Read a stack.json; raises NotConnected if it does not exist, BadConnection if it is not valid."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise NotConnected(str(path)) from error
        except OSError as error:
            raise BadConnection(
                f"{path} cannot be read: {error.strerror}", "Check the path and its permissions."
            ) from error
        except ValidationError as error:
            raise BadConnection(
                f"{path}: {first_problem(error)}", "Start the stack again, or name another with --stack."
            ) from None

    def client_settings(self) -> ClientSettings:
        """Return the settings of the service's client."""
        return ClientSettings(**{name: getattr(self, name) for name in ClientSettings.model_fields})

    def operator_settings(self) -> ClientSettings:
        """Return the same with the operator's identity; a stack of an older release has none, so Polaris' is used."""
        if self.operator_client_secret is None:
            return self.client_settings()
        return self.client_settings().model_copy(
            update={
                "client_cert": self.operator_cert,
                "client_key": self.operator_key,
                "client_id": self.operator_client_id,
                "client_secret": self.operator_client_secret,
                "scope": self.operator_scope,
            }
        )


class Connection:
    """Opens the connections of a command on demand.

    The file given with --stack takes precedence, then the environment if DELEGATION_EDGE_URL (for the catalog
    DELEGATION_POLARIS_URL) is set, then `.local/stack.json`.
    """

    def __init__(self, stack: Path | None) -> None:
        self._path = stack or DEFAULT_STACK
        self._named = stack is not None

    def client_settings(self) -> ClientSettings:
        """Return the settings of the service's client; raises NotConnected, BadConnection."""
        if self._from_environment("DELEGATION_EDGE_URL"):
            try:
                return ClientSettings.read()
            except ValidationError as error:
                raise BadConnection(first_problem(error), "Set it (docs/command.md lists the variables).") from None
        return Stack.read(self._path).client_settings()

    def client(self) -> DelegationClient:
        """Return a client of the service; also raises ClientMisconfigured."""
        return DelegationClient.connect(self.client_settings())

    def catalog(self) -> PolarisClient:
        """Return a Polaris client with the caller's credential; raises NotConnected, BadConnection."""
        if self._from_environment("DELEGATION_POLARIS_URL"):
            return polaris_as(
                os.environ["DELEGATION_POLARIS_URL"],
                SecretStr(os.environ.get("DELEGATION_POLARIS_CREDENTIAL", "")),
                scope=os.environ.get("DELEGATION_POLARIS_SCOPE", DEFAULT_SCOPE),
                realm=os.environ.get("DELEGATION_REALM"),
            )
        stack = Stack.read(self._path)
        return polaris_as(stack.polaris_url, stack.polaris_credential, scope=stack.polaris_scope, realm=stack.realm)

    def task_store(self, table: str | None) -> DynamoDbTaskStore:
        """Return the store over the task table, with the operator's own AWS credentials.

        Without --stack, `table` is in the account of the AWS environment; without `table`, the stack is searched for
        it. Raises NotConnected, BadConnection, TaskTableUnknown, StoreUnavailable.
        """
        if table is not None and not self._named:
            client = dynamodb_client()
        else:
            endpoint = Stack.read(self._path).dynamodb_endpoint
            client = dynamodb_client(endpoint, **(_EMULATED if urlsplit(endpoint).hostname in _LOOPBACK else {}))
        return DynamoDbTaskStore(ConditionalTable(client), table or find_task_table(client))

    def operator(self, table: str | None) -> str:
        """Return the ARN of the AWS identity with which `task_store` works, or that AWS STS could not be asked.

        A cancellation must not fail because of it; CloudTrail has the identity too. Raises as `task_store`.
        """
        try:
            if table is not None and not self._named:
                client = boto3.client("sts", config=_BRIEF)
            else:
                endpoint = Stack.read(self._path).aws_endpoint
                identity: Mapping[str, Any] = _EMULATED if urlsplit(endpoint).hostname in _LOOPBACK else {}
                client = boto3.client("sts", endpoint_url=endpoint, config=_BRIEF, **identity)
            return str(client.get_caller_identity()["Arn"])
        except (BotoCoreError, ClientError) as error:
            return f"unknown, AWS STS could not be asked ({type(error).__name__})"

    def _from_environment(self, variable: str) -> bool:
        return not self._named and bool(os.environ.get(variable))


def polaris_as(url: str, credential: SecretStr, *, scope: str, realm: str | None) -> PolarisClient:
    """Return a Polaris client with an `id:secret` credential; raises BadConnection for any other form."""
    client_id, separator, secret = credential.get_secret_value().partition(":")
    if not (client_id and separator and secret):
        raise BadConnection(
            "the credential for Polaris is not of the form id:secret", "Set DELEGATION_POLARIS_CREDENTIAL."
        )
    shared = Transport(httpx.Client(timeout=20.0))
    token = OAuth2TokenSource(
        f"{url.rstrip('/')}/v1/oauth/tokens",
        lambda: ClientCredentials(client_id, SecretStr(secret)),
        clock=utc_now,
        scope=scope,
        realm=realm,
        transport=shared,
    )
    return PolarisClient(url, token, realm=realm, transport=shared)


def dynamodb_client(endpoint: str | None = None, **identity: Any) -> Any:
    """Return a DynamoDB client with the AWS environment's region and keys, or `identity`; raises BadConnection."""
    try:
        return boto3.client("dynamodb", endpoint_url=endpoint, config=client_config(), **identity)
    except BotoCoreError as error:
        raise BadConnection(f"AWS: {error}", "Set AWS_REGION and your credentials as for the AWS CLI.") from error


def find_task_table(client: Any) -> str:
    """Return the only table with the task table's key schema; raises TaskTableUnknown, StoreUnavailable."""
    try:
        names = [name for page in client.get_paginator("list_tables").paginate() for name in page["TableNames"]]
        found: list[str] = [
            name for name in names if client.describe_table(TableName=name)["Table"]["KeySchema"] == _TASK_KEY
        ]
    except (BotoCoreError, ClientError) as error:
        raise StoreUnavailable(f"DynamoDB cannot list its tables: {type(error).__name__}") from error
    if len(found) != 1:
        raise TaskTableUnknown(
            f"{len(found)} tables have the key schema of the task table: {', '.join(found) or 'none'}"
        )
    return found[0]


def first_problem(error: ValidationError) -> str:
    """Return the name of the first invalid field and what is wrong with it, without its value."""
    first = error.errors(include_input=False)[0]
    return f"{'.'.join(str(step) for step in first['loc']) or 'content'}: {first['msg']}"
