"""The settings and connections of the running call."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx
import typer
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from delegation.cli.errors import CommandError, TaskTableUnknown, gateway_unknown
from delegation.client.client import DelegationClient
from delegation.client.settings import ClientSettings
from delegation.configuration import DEFAULT_STACK, CallerSettings, FieldProblem, SettingsInvalid, problems_of
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import DEFAULT_SCOPE, ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from delegation.references.store import ReferenceStore
    from delegation.tasks.pauses import PauseStore
    from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
    from delegation.upkeep.health.store import HealthStore
    from delegation.wiring.tasks import StoredTasks


_KEY: Final = "delegation.settings"
PROFILE_KEY: Final = "delegation.profile"


def settings_of(ctx: typer.Context) -> CallerSettings:
    """Return the settings with the profile that the call names, read once in a call. Raises SettingsInvalid."""
    meta = ctx.meta  # shared by the contexts of one call
    if _KEY not in meta:
        meta[_KEY] = CallerSettings.load(meta.get(PROFILE_KEY))
    settings: CallerSettings = meta[_KEY]
    return settings


_INDEX_KEY: Final = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
_TASK_KEY: Final = [{"AttributeName": "task_id", "KeyType": "HASH"}, {"AttributeName": "version", "KeyType": "RANGE"}]


def find_task_table(client: Any) -> str:
    """Return the only table with the task table's key schema. Raises TaskTableUnknown, StoreUnavailable."""
    tables = _tables_with(client, _TASK_KEY)
    if len(tables) != 1:
        raise TaskTableUnknown(
            f"several tables have the key schema of the task table: {', '.join(tables)}"
            if tables
            else "no table has the key schema of the task table"
        )
    return tables[0]


def find_index_table(client: Any) -> str:
    """Return the only table of a stack that can be the reference index. Raises CommandError, StoreUnavailable."""
    tables = [name for name in _tables_with(client, _INDEX_KEY) if "references" in name.lower()]
    if len(tables) != 1:
        raise CommandError(
            f"several tables can be the reference index: {', '.join(tables)}"
            if tables
            else "no table has the reference index's key schema and `references` in its name",
            "Name the Data stack's References table with --index-table or DELEGATION_REFERENCES_TABLE.",
            code="INDEX_TABLE_UNKNOWN",
        )
    return tables[0]


def _tables_with(client: Any, key: list[dict[str, str]]) -> list[str]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from delegation.tasks.errors import StoreUnavailable  # noqa: PLC0415

    try:
        names = [name for page in client.get_paginator("list_tables").paginate() for name in page["TableNames"]]
        return [name for name in names if client.describe_table(TableName=name)["Table"]["KeySchema"] == key]
    except (BotoCoreError, ClientError) as error:
        raise StoreUnavailable(f"the tables of DynamoDB cannot be listed: {type(error).__name__}") from error


_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# An emulator accepts any key, so no real one is sent to it. The local stack creates its tables in this region.
_EMULATED: Final[Mapping[str, str]] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "operator",
    "aws_secret_access_key": "operator",
}
_CORRECT: Final = (
    "Correct these settings. `delegation config show` lists all settings and where their values come from."
)
_OPERATOR: Final[Mapping[str, str]] = {
    "client_cert": "operator_cert",
    "client_key": "operator_key",
    "client_id": "operator_client_id",
    "client_secret": "operator_client_secret",
    "scope": "operator_scope",
}
"""The fields of ClientSettings, and the settings that replace them for an operator."""
_HELD_OPEN: Final = 35.0
"""Longer than API Gateway's integration timeout of 29 s, after which no answer can arrive."""


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
    gateway_url: str | None = None

    @classmethod
    def read(cls, path: Path) -> "Stack":
        """Read a stack.json. Raises CommandError or SettingsInvalid."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise CommandError(
                f"{path!s} does not exist, and edge_url (DELEGATION_EDGE_URL) is not set",
                "Start the system with `delegation local up`, name its stack.json with --stack, or set the connection "
                "in a profile or the environment. `delegation config show` lists the settings.",
                code="NOT_CONNECTED",
            ) from error
        except OSError as error:
            raise CommandError(
                f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.", code="BAD_CONNECTION"
            ) from error
        except ValidationError as error:
            next_step = "Start the stack again, or name another stack.json with --stack."
            raise SettingsInvalid(str(path), problems_of(error), next_step) from None

    def client_settings(self) -> ClientSettings:
        return ClientSettings(**{name: getattr(self, name) for name in ClientSettings.model_fields})

    def operator_settings(self) -> ClientSettings:
        """Return the same with the operator's identity; a stack of an older release has none, so Polaris' is used."""
        if self.operator_client_secret is None:
            return self.client_settings()
        return self.client_settings().model_copy(update={name: getattr(self, own) for name, own in _OPERATOR.items()})


class Connection:
    """Opens connections on demand: by --stack, else the settings, else the stack.json of the profile or the default."""

    def __init__(self, stack: Path | None, settings: CallerSettings | None = None) -> None:
        self._opened = ExitStack()
        self._http: httpx.Client | None = None
        self.settings = settings or CallerSettings.load()
        own = self.settings.get("stack")
        self._path = stack or (Path(own) if own else DEFAULT_STACK)
        self._named = stack is not None

    @classmethod
    def of(cls, ctx: typer.Context, stack: Path | None) -> "Connection":
        """Return the connection of a command, closed when the command ends. Raises SettingsInvalid."""
        connection = cls(stack, settings_of(ctx))
        ctx.call_on_close(connection.close)
        return connection

    def close(self) -> None:
        self._opened.close()

    def http(self) -> httpx.Client:
        if self._http is None:
            self._http = self._opened.enter_context(httpx.Client(timeout=20.0))
        return self._http

    def client_settings(self) -> ClientSettings:
        """Return the settings of the service's client. Raises CommandError, SettingsInvalid."""
        return self._client_settings({}) if self._address("edge_url") else self.stack().client_settings()

    def operator_settings(self) -> ClientSettings:
        """Return the same with the operator's identity if there is one. Raises the same."""
        return self._client_settings(_OPERATOR) if self._address("edge_url") else self.stack().operator_settings()

    def client(self) -> DelegationClient:
        """Return a client of the service. Also raises ClientMisconfigured."""
        return self._opened.enter_context(DelegationClient.connect(self.client_settings()))

    def operator_client(self) -> DelegationClient:
        """Return a client with the operator's identity. Raises the same."""
        return self._opened.enter_context(DelegationClient.connect(self.operator_settings()))

    def catalog(self) -> PolarisClient:
        """Return a Polaris client with the caller's credential. Raises CommandError, SettingsInvalid."""
        named = self.named_polaris()
        url = self.stack().polaris_url if named is None else named
        return self._as_caller(url, self.http(), by_settings=named is not None)

    def catalog_through_gateway(self) -> PolarisClient:
        """Return a client with the caller's credential that calls the gateway. Raises CommandError."""
        http = self._opened.enter_context(httpx.Client(timeout=httpx.Timeout(_HELD_OPEN, connect=5.0)))
        own = self._address("gateway_url")
        if own is None and self.named_polaris() is not None:
            raise gateway_unknown("gateway_url (DELEGATION_GATEWAY_URL) is not set")
        url = own or self.stack().gateway_url
        if not url:
            raise gateway_unknown(f"{self._path} has no gateway_url: the stack runs without a gateway")
        return self._as_caller(url, http, by_settings=own is not None)

    def _as_caller(self, url: str, http: httpx.Client, *, by_settings: bool) -> PolarisClient:
        if not by_settings:
            stack = self.stack()
            return polaris_as(url, stack.polaris_credential, scope=stack.polaris_scope, realm=stack.realm, http=http)
        credential = SecretStr(self.settings.get("polaris_credential") or "")
        scope = self.settings.get("polaris_scope") or DEFAULT_SCOPE
        return polaris_as(url, credential, scope=scope, realm=self.settings.get("realm"), http=http)

    def named_polaris(self) -> str | None:
        """Return the catalog's address in the settings, None if it is that of the local stack."""
        return self._address("polaris_url")

    def admin_credential(self) -> SecretStr | None:
        """Return the credential of an administrator of Polaris, None without one. Raises as `stack`."""
        credential = self.settings.get("polaris_admin_credential")
        if credential is not None:
            return SecretStr(credential)
        return None if self._address("polaris_url") else self.stack().polaris_root_credential

    def task_store(self, table: str | None) -> "StoredTasks":
        """Return the store of the settings: a task table, which a named table always is, or the persistence."""
        if table is not None or not self.uses_persistence():
            return self.task_table(table)
        from delegation.wiring.persistent_tasks import persistent_tasks  # noqa: PLC0415 - loads boto3

        objects, references = self.persistence_tables()
        return persistent_tasks(self._dynamodb(objects), objects, references)

    def uses_persistence(self) -> bool:
        store = self.settings.get("task_store") or "table"
        if store not in {"table", "persistence"}:
            raise SettingsInvalid(
                "the settings", [FieldProblem("task_store", "must be table or persistence")], _CORRECT
            )
        return store == "persistence"

    def persistence_tables(self) -> tuple[str, str]:
        """Return the objects table and the references table of the settings. Raises SettingsInvalid."""
        names = ("objects_table", "persistence_references_table")
        tables = [self.settings.get(name) or "" for name in names]
        if problems := [
            FieldProblem(name, "is not set") for name, table in zip(names, tables, strict=True) if not table
        ]:
            raise SettingsInvalid("the settings", problems, _CORRECT)
        return tables[0], tables[1]

    def task_table(self, table: str | None) -> "DynamoDbTaskStore":
        """Return a task table in the AWS environment; without `table` or with --stack that of the local stack."""
        from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore  # noqa: PLC0415 - loads boto3

        table = table or self.settings.get("tasks_table")
        client = self._dynamodb(table)
        return DynamoDbTaskStore(ConditionalTable(client), table or find_task_table(client))

    def reference_store(self, table: str | None) -> "ReferenceStore":
        """Return the reference index, found like a task table. Raises CommandError, ReferencesUnavailable."""
        from delegation.references.store import ReferenceStore, ReferenceTable  # noqa: PLC0415 - boto3

        client, name = self._index_table(table)
        return ReferenceStore(ReferenceTable(client), name)

    def health_store(self, table: str | None) -> "HealthStore":
        """Return the health of tables, which is in the table of the reference index. Raises as `reference_store`."""
        from delegation.upkeep.health.store import HealthStore, HealthTable  # noqa: PLC0415 - loads boto3

        client, name = self._index_table(table)
        return HealthStore(HealthTable(client), name)

    def _index_table(self, table: str | None) -> tuple[Any, str]:
        table = table or self.settings.get("references_table")
        client = self._dynamodb(table)
        return client, table or find_index_table(client)

    def s3(self, bucket: str | None, endpoint: str | None = None) -> "S3Client":
        """Return a client of S3 with the operator's own credentials, of the local stack unless `bucket` is on AWS."""
        from delegation.storage.credentials import S3Settings  # noqa: PLC0415 - loads boto3
        from delegation.storage.s3 import S3Timeouts  # noqa: PLC0415
        from delegation.storage.sessions import s3_client  # noqa: PLC0415

        identity: Mapping[str, Any] = {}
        region = None
        if endpoint is None and not self._is_on_aws(bucket):
            endpoint = self.stack().s3_endpoint
            identity = dict(emulated_identity(endpoint))
            region = identity.pop("region_name", None)
        addressing = {"addressing_style": "path"} if endpoint else None
        config = S3Timeouts().config(max_pool_connections=32, s3=addressing)
        return s3_client(S3Settings(endpoint, region), config=config, **identity)

    def pause_store(self, table: str | None) -> "PauseStore":
        """Return the store of pauses beside the tasks. Raises as `task_store`."""
        from delegation.wiring.tasks import pause_store  # noqa: PLC0415 - loads boto3

        return pause_store(self.task_store(table))

    def operator(self, table: str | None) -> str:
        """Return the ARN of the AWS identity, or a note that STS did not answer: no cancellation may fail for that."""
        import boto3  # noqa: PLC0415 - commands that call the API work without it
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        if table is None and self.uses_persistence():
            table = self.settings.get("objects_table")
        table = table or self.settings.get("tasks_table")
        brief = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})
        try:
            if self._is_on_aws(table):
                client = boto3.client("sts", config=brief)
            else:
                endpoint = self.stack().aws_endpoint
                client = boto3.client("sts", endpoint_url=endpoint, config=brief, **emulated_identity(endpoint))
            return str(client.get_caller_identity()["Arn"])
        except (BotoCoreError, ClientError) as error:
            return f"unknown, the call to AWS STS failed ({type(error).__name__})"

    def stack(self) -> Stack:
        return Stack.read(self._path)

    def uses_stack(self) -> bool:
        return self._address("edge_url") is None

    def _client_settings(self, instead: Mapping[str, str]) -> ClientSettings:
        values = self.settings.variables()
        for field, own in instead.items():
            if (value := self.settings.get(own)) is not None:
                values[f"DELEGATION_{field.upper()}"] = value
        try:
            return ClientSettings.model_validate(values)
        except ValidationError as error:
            raise SettingsInvalid("the connection to the service", problems_of(error), _CORRECT) from None

    def _dynamodb(self, table: str | None) -> Any:
        if self._is_on_aws(table):
            return dynamodb_client()
        endpoint = self.stack().dynamodb_endpoint
        return dynamodb_client(endpoint, **emulated_identity(endpoint))

    def _is_on_aws(self, table: str | None) -> bool:
        """Return whether a named table is in the account of the AWS environment, and not in a local stack."""
        return table is not None and not self._named and (not self.uses_stack() or self.settings.get("stack") is None)

    def _address(self, name: str) -> str | None:
        """Return an address of the settings; a named stack takes precedence. Raises SettingsInvalid."""
        return None if self._named else self.settings.address(name)


def emulated_identity(endpoint: str) -> Mapping[str, Any]:
    """Return the region and keys for an emulator on this machine, none for any other endpoint."""
    return _EMULATED if urlsplit(endpoint).hostname in _LOOPBACK else {}


def polaris_as(
    url: str, credential: SecretStr, *, scope: str, realm: str | None, http: httpx.Client | None = None
) -> PolarisClient:
    """Return a Polaris client with an `id:secret` credential. Raises CommandError for any other form."""
    shared = Transport(http)
    token = polaris_tokens(url, credential, scope=scope, realm=realm, transport=shared)
    return PolarisClient(url, token, realm=realm, transport=shared)


def polaris_tokens(
    url: str,
    credential: SecretStr,
    *,
    scope: str,
    realm: str | None,
    transport: Transport,
    setting: str = "DELEGATION_POLARIS_CREDENTIAL",
) -> OAuth2TokenSource:
    """Return the tokens of an `id:secret` credential at Polaris' own endpoint. Raises CommandError (BAD_CONNECTION)."""
    client_id, separator, secret = credential.get_secret_value().partition(":")
    if not (client_id and separator and secret):
        raise CommandError(
            "the credential for Polaris is not of the form id:secret", f"Correct {setting}.", code="BAD_CONNECTION"
        )
    return OAuth2TokenSource(
        f"{url.rstrip('/')}/v1/oauth/tokens",
        lambda: ClientCredentials(client_id, SecretStr(secret)),
        clock=utc_now,
        scope=scope,
        realm=realm,
        transport=transport,
    )


def dynamodb_client(endpoint: str | None = None, **identity: Any) -> Any:
    """Return a DynamoDB client with the AWS environment's region and keys, or `identity`. Raises CommandError."""
    import boto3  # noqa: PLC0415 - commands that call the API work without it
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    from polaris_common.dynamodb import client_config  # noqa: PLC0415

    try:
        return boto3.client("dynamodb", endpoint_url=endpoint, config=client_config(), **identity)
    except BotoCoreError as error:
        raise CommandError(
            f"AWS: {error}", "Set AWS_REGION and your credentials as for the AWS CLI.", code="BAD_CONNECTION"
        ) from error
