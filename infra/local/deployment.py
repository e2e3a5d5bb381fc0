"""Deploys the service to the backends: resources, functions, state machine, EMR endpoint, queue and schedule."""

import contextlib
import hashlib
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from delegation.idempotency.settings import KeySettings
from delegation.wiring.types import policies_of
from infra.environment import functions
from infra.environment.context import ROOT
from infra.environment.resources import Resources, environment, packaged_job
from infra.local import resources
from infra.local.aws.server import ACCOUNT, REGION
from infra.local.aws.triggers import Clock, Mapping, Poller
from infra.local.backends import Backends, Endpoints, Start, client
from infra.local.emr.endpoint import EmrServerlessEndpoint
from infra.local.emr.spark_jobs import LocalSparkJobs
from infra.local.identities import SCOPE, TOKEN_AUDIENCE
from infra.local.lambdas.functions import FunctionSpec, LambdaPool, LocalFunction
from infra.package.parts import ARCHIVES, SPARK
from infra.package.trees import add_sources, write_tar

ICEBERG: Final = "1.12.0"
JARS: Final = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",
)
"""What a job that rewrites loads, of the release of Spark on this machine; Spark gets them from Maven's repository."""
ENTRY_POINT: Final = ROOT / "spark" / "run_task.py"


@dataclass(frozen=True, slots=True)
class PublishedCode:
    """The URLs of the jobs' main file and of their archive, which has the service's sources alone."""

    entry_point: str
    archive: str


def publish(s3: Any, bucket: str) -> PublishedCode:
    """Upload the entry point and an archive of the sources; raises botocore's errors."""
    with tempfile.TemporaryDirectory() as folder:
        tree, archive = Path(folder) / SPARK, Path(folder) / ARCHIVES[SPARK]
        tree.mkdir()
        add_sources(tree)
        write_tar(tree, archive)
        return PublishedCode(*(_upload(s3, bucket, path) for path in (ENTRY_POINT, archive)))


def asset_key(path: Path) -> str:
    """Return the key of a file's asset: its hash and the *last* extension of its name (aws-cdk-lib, `AssetStaging`)."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}{path.suffix}"


def installed_libraries() -> tuple[str, ...]:
    """Return the directories of the libraries that a package has and an archive of sources lacks."""
    return tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def _upload(s3: Any, bucket: str, path: Path) -> str:
    key = asset_key(path)
    s3.upload_file(str(path), bucket, key)
    return f"s3://{bucket}/{key}"


JOB_ROLE = f"arn:aws:iam::{ACCOUNT}:role/delegation-job"
# Instances of a function that run at once: each caller that waits for a purge occupies one of `api`.
_CONCURRENCY = {"api": 24, functions.GATEWAY.name: 24}
_DEFAULT_CONCURRENCY = 6
_RECEIVERS_HERE = {"DELEGATION_CALLBACK_LOOPBACK": "true"}
"""Receivers of the local stack's callbacks are on this machine, which a deployment never calls."""
_WARM = ("authorizer", "api", "dispatcher", "acquire", "prepare")


def deploy(start: Start, backends: Backends) -> Endpoints:
    """Create the resources and start every part; the functions end first. Return the endpoints with that of EMR."""
    options, lambdas = start.options, start.lambdas
    aws, keys = backends.aws, backends.endpoints.keys
    emr = _start_emr(start, backends.endpoints)
    endpoints = replace(backends.endpoints, emr_serverless=emr.url)
    keys_expire = KeySettings.from_properties(options.all_properties()).cleanup
    resources.create_tables(client("dynamodb", endpoints.dynamodb, keys), keys_expire=keys_expire)
    sqs = aws.client("sqs")
    queue = resources.create_queue(sqs)
    s3 = client("s3", endpoints.s3, keys)
    resources.create_buckets(s3, resources.CODE_BUCKET)
    described = _with_code(_describe(start, backends, emr, queue), publish(s3, resources.CODE_BUCKET))
    if options.gateway:
        resources.create_tombstones(client("dynamodb", endpoints.dynamodb, keys))
        described = described.replaced(tombstones_table=resources.TOMBSTONES_TABLE)
    arns = {name: lambdas.arn(name) for name in functions.FUNCTIONS}
    machine = resources.create_state_machine(aws.client("stepfunctions"), arns, account=ACCOUNT)
    described = described.replaced(state_machine_arn=machine)
    names = resources.NOTIFICATION_QUEUES if functions.notifies(options.all_properties()) else ()
    seconds = functions.NOTIFICATION_VISIBILITY_SECONDS
    notifications = [resources.create_queue(sqs, name, visibility_seconds=seconds) for name in names]
    if notifications:
        described = _notifying(start, described, backends, notifications)
    for function in functions.deployed_functions(described["properties"]).values():
        _add_function(lambdas, function, described, endpoints)
    if options.gateway:
        _add_gateway(lambdas, described, backends, endpoints)
    for each in notifications:
        start.run(_poller(sqs, each, lambdas.function("notifier"), functions.NOTIFICATION_BATCH_SIZE))
    start.run(_poller(sqs, queue, lambdas.function("dispatcher"), functions.DISPATCH_BATCH_SIZE))
    clock = Clock(lambdas.function("sweeper"), interval_seconds=options.sweep_seconds, region=REGION, account=ACCOUNT)
    # `cleanup` runs in reverse: it ends the functions first, so that poller and clock wait for no answer.
    start.run(clock)
    start.cleanup.callback(lambdas.stop)
    for name in _WARM:
        lambdas.function(name).warm()
    return endpoints


def _notifying(start: Start, described: Resources, backends: Backends, queues: Sequence[resources.Queue]) -> Resources:
    """Return the resources with those of notifications; receivers may have certificates of the stack's authority."""
    options = start.options
    names = policies_of(options.all_properties()).notifications.callbacks
    secrets_manager = backends.aws.client("secretsmanager")
    callbacks, events, apart = queues
    return described.replaced(
        notification_queue_url=callbacks.url,
        event_queue_url=events.url,
        apart_queue_url=apart.url,
        callback_keys_arn=resources.create_callback_keys(secrets_manager, names, options.state_dir),
        callback_authorities=start.identities.authority.files.cert.read_text(encoding="utf-8"),
    )


def _poller(sqs: Any, queue: resources.Queue, function: LocalFunction, batch_size: int) -> Poller:
    mapping = Mapping(
        queue.url, queue.arn, REGION, batch_size=batch_size, maximum_concurrency=functions.DISPATCH_MAX_CONCURRENCY
    )
    return Poller(sqs, mapping, function)


def _add_gateway(lambdas: LambdaPool, described: Resources, backends: Backends, endpoints: Endpoints) -> None:
    """Deploy the gateway; it calls the catalog itself, and verifies its callers' tokens with the catalog's key."""
    own = described.replaced(
        gateway_base_path=urlsplit(backends.polaris.url).path.rstrip("/"),
        token_issuer="polaris",  # noqa: S106 - the name of an issuer
        token_jwks_url=None,
        token_public_key=backends.polaris.public_key,
        token_audience=None,
    )
    _add_function(lambdas, functions.GATEWAY, own, endpoints)
    lambdas.function(functions.GATEWAY.name).warm()


def _add_function(
    lambdas: LambdaPool, function: functions.Function, described: Resources, endpoints: Endpoints
) -> None:
    lambdas.add(
        FunctionSpec(
            name=function.name,
            handler=function.handler,
            timeout_seconds=function.timeout_seconds,
            memory_mb=function.memory_mb,
            environment={**environment(function.name, described), **endpoints.environment(), **_RECEIVERS_HERE},
            concurrency=function.reserved_concurrency or _CONCURRENCY.get(function.name, _DEFAULT_CONCURRENCY),
        )
    )


def _start_emr(start: Start, endpoints: Endpoints) -> EmrServerlessEndpoint:
    def download(bucket: str, key: str, target: Path) -> None:
        with contextlib.closing(client("s3", endpoints.s3, endpoints.keys)) as s3:
            s3.download_file(bucket, key, str(target))

    jobs = LocalSparkJobs(
        log_folder=start.logs / "emr",
        environment=endpoints.environment(),
        download=download,
        libraries=installed_libraries(),
    )
    return start.run(EmrServerlessEndpoint(jobs, region=REGION, account=ACCOUNT))


def _with_code(described: Resources, code: PublishedCode) -> Resources:
    return described.replaced(
        emr_entry_point=code.entry_point,
        emr_spark_parameters=packaged_job(code.archive),
        emr_jars=",".join(JARS),
    )


def _describe(start: Start, backends: Backends, emr: EmrServerlessEndpoint, queue: resources.Queue) -> Resources:
    """Return the values for the functions' variables; the caller adds the state machine, which needs their ARNs."""
    identities = start.identities
    service_id, service_secret = backends.polaris.service
    secret = resources.create_secret(backends.aws.client("secretsmanager"), service_id, service_secret)
    described = Resources(
        realm=backends.polaris.realm,
        tasks_table=resources.TASKS_TABLE,
        idempotency_table=resources.IDEMPOTENCY_TABLE,
        references_table=resources.REFERENCES_TABLE,
        queue_url=queue.url,
        plan_bucket=resources.PLAN_BUCKET,
        polaris_url=backends.polaris.url,
        polaris_secret_arn=secret,
        polaris_scope=backends.polaris.service_scope,
        emr_application_id=emr.application_id,
        emr_job_role_arn=JOB_ROLE,
        client_subject=identities.subject,
        client_issuer=identities.authority.subject,
        operator_subjects=identities.operator_subject,
        token_issuer=identities.issuer.issuer,
        token_jwks_url=identities.issuer.jwks_url,
        token_audience=TOKEN_AUDIENCE,
        token_scope=SCOPE,
        properties=start.options.all_properties(),
    )
    limit = start.options.inline_max_files
    return described if limit is None else described.replaced(inline_max_files=limit)
