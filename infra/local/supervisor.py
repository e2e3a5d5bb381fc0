"""Starts every part of the system on one machine, wires them together, and stops them."""

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from delegation.cli.connection import Stack
from delegation.gateway.drop.settings import DropSettings
from infra.environment.functions import GATEWAY
from infra.local import resources
from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.aws.server import ACCOUNT, REGION
from infra.local.backends import AwsKeys, Backends, Endpoints, Start, create_tombstone_namespace, start_backends
from infra.local.deployment import deploy
from infra.local.errors import CannotStartError, LocalStackError
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.balancer import CatalogBalancer
from infra.local.front.https import Front, TlsFiles, check_port
from infra.local.given_polaris import check_polaris
from infra.local.identities import SCOPE, Identities
from infra.local.lambdas.functions import LambdaPool
from infra.local.options import StackOptions
from infra.local.stack_file import NAME, write
from infra.package import description

BASE_PATH = "/delegation-service/api"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    where: str
    note: str = ""


class LocalStack:
    """One stack; `start` returns when it is ready and stack.json is written, `stop` ends every part."""

    def __init__(self, options: StackOptions) -> None:
        self._options = options
        self._folder = options.state_dir.resolve()
        self._logs = self._folder / "logs"
        self._cleanup = contextlib.ExitStack()
        self._dynamodb: DynamoDbLocal | None = None
        self._lambdas = LambdaPool(log_folder=self._logs, region=REGION, account=ACCOUNT)
        self.parts: tuple[Part, ...] = ()

    @property
    def path(self) -> Path:
        """The path of stack.json, which exists once the stack is ready."""
        return self._folder / NAME

    @property
    def lambdas(self) -> LambdaPool:
        """The functions; each exists once the stack is ready."""
        return self._lambdas

    @property
    def logs(self) -> Path:
        """The folder with the logs of functions, jobs and servers."""
        return self._logs

    def start(self) -> Self:
        """Start every part; on failure end the started ones and raise `CannotStartError`."""
        with contextlib.ExitStack() as cleanup:
            self._claim_folder(cleanup)
            try:
                self._start(cleanup)
            except (BotoCoreError, ClientError) as exc:
                raise CannotStartError("AWS", resources.reason(exc)) from exc
            except OSError as exc:
                raise CannotStartError("the stack", str(exc)) from exc
            self._cleanup = cleanup.pop_all()
        return self

    def check(self) -> None:
        """Raise `LocalStackError` if DynamoDB Local, which is not restarted, has ended."""
        if self._dynamodb and not self._dynamodb.running:
            raise LocalStackError(f"DynamoDB Local has ended; see {self._logs / 'dynamodb.log'}")

    def stop(self) -> None:
        """End every part and process, the newest first, and remove stack.json; may be called again."""
        self._cleanup.close()

    def _claim_folder(self, cleanup: contextlib.ExitStack) -> None:
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            lock = cleanup.enter_context((self._folder / "lock").open("w"))
        except OSError as exc:
            raise CannotStartError("the stack", f"{self._folder} cannot be written: {exc.strerror}") from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            reason = f"another stack uses {self._folder}; name another folder with --state-dir"
            raise CannotStartError("the stack", reason) from exc
        # The logs and stack.json of a former stack would mislead readers.
        shutil.rmtree(self._logs)
        self._logs.mkdir()
        self.path.unlink(missing_ok=True)
        cleanup.callback(self.path.unlink, missing_ok=True)

    def _start(self, cleanup: contextlib.ExitStack) -> None:
        description.ensure()
        check_port(self._options.port)
        given = self._options.given_polaris()
        if given is not None:
            check_polaris(given)
        foreign = bool(self._options.s3_endpoint or self._options.dynamodb_endpoint)
        lambdas = self._lambdas
        identities = Identities.create(self._folder / "pki", drops_tables=self._options.gateway)
        start = Start(self._options, identities, lambdas, self._logs, cleanup)
        start.run(identities.issuer)
        backends = start_backends(start, AwsKeys.choose(os.environ, foreign=foreign))
        self._dynamodb = backends.dynamodb
        if self._options.gateway:
            drops = DropSettings.from_properties(self._options.all_properties())
            create_tombstone_namespace(backends.polaris, drops.tombstone_namespace)
        endpoints = deploy(start, backends)
        front = Front(
            api=lambdas.function("api"),
            authorizer=lambdas.function("authorizer"),
            tls=TlsFiles(identities.server.cert, identities.server.key, identities.authority.files.cert),
            gateway=LocalApiGateway("localhost", BASE_PATH, REGION, ACCOUNT),
            port=self._options.port,
        )
        start.run(front)
        balancer = None
        if self._options.gateway:
            gateway, catalog = lambdas.function(GATEWAY.name), backends.polaris.url
            balancer = start.run(CatalogBalancer(catalog_url=catalog, gateway=gateway, region=REGION, account=ACCOUNT))
        self.parts = _parts(start, front, backends, endpoints, balancer)
        write(_described(front, identities, backends, balancer), self._folder)


def _described(front: Front, identities: Identities, backends: Backends, balancer: CatalogBalancer | None) -> Stack:
    return Stack(
        edge_url=front.url,
        **identities.of_callers(),
        realm=backends.polaris.realm,
        aws_endpoint=backends.endpoints.aws,
        dynamodb_endpoint=backends.endpoints.dynamodb,
        s3_endpoint=backends.endpoints.s3,
        polaris_url=backends.polaris.url,
        polaris_credential=SecretStr(":".join(backends.polaris.owner)),
        polaris_scope=backends.polaris.scope,
        polaris_root_credential=SecretStr(":".join(backends.polaris.root)) if backends.polaris.root else None,
        polaris_public_key=backends.polaris.public_key,
        warehouse=backends.polaris.warehouse,
        gateway_url=balancer.url if balancer else None,
    )


def _parts(
    start: Start, front: Front, backends: Backends, endpoints: Endpoints, balancer: CatalogBalancer | None
) -> tuple[Part, ...]:
    issuer = start.identities.issuer
    return (
        Part("Delegation service", front.url, "client certificate and token required"),
        Part("Token issuer", issuer.token_url, f"scope {SCOPE}"),
        Part("Polaris", backends.polaris.url, f"warehouse {backends.polaris.warehouse}; {backends.polaris.note}"),
        *([Part("Gateway", balancer.url, "the same catalog, behind the load balancer's rule")] if balancer else []),
        Part("S3", endpoints.s3, backends.s3_note),
        Part("DynamoDB", endpoints.dynamodb, backends.dynamodb_note),
        Part("Other AWS services", endpoints.aws, "moto; functions run in separate processes"),
        Part("EMR Serverless", endpoints.emr_serverless or "", "spark-submit on this machine"),
        Part("Logs", str(start.logs), "one file per function, emr/ per job run"),
    )
