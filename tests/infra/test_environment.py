"""The table of functions and variables, which needs no Node."""

import json
import os
import shlex

import boto3
import pytest

from delegation.wiring.removals import expiry_behavior, orphans_behavior
from delegation.wiring.spark import job_tasks
from delegation.wiring.types import policies_of
from infra.environment.context import default_properties
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import Resources, environment, spark_environment
from tests.aws import mock_aws

ACCOUNT = "arn:aws:{service}:eu-central-1:123456789012:{rest}"
DEPLOYMENT = Resources(
    realm="POLARIS",
    tasks_table="delegation-prod-tasks",
    idempotency_table="delegation-prod-idempotency",
    references_table="delegation-prod-references",
    queue_url="https://sqs.eu-central-1.amazonaws.com/123456789012/delegation-prod-dispatch",
    notification_queue_url="https://sqs.eu-central-1.amazonaws.com/123456789012/delegation-prod-notifications",
    event_queue_url="https://sqs.eu-central-1.amazonaws.com/123456789012/delegation-prod-events",
    apart_queue_url="https://sqs.eu-central-1.amazonaws.com/123456789012/delegation-prod-apart",
    event_bus=ACCOUNT.format(service="events", rest="event-bus/delegation-prod"),
    callback_keys_arn=ACCOUNT.format(service="secretsmanager", rest="secret:delegation-prod-callbacks-AbCdEf"),
    state_machine_arn=ACCOUNT.format(service="states", rest="stateMachine:delegation-prod-purge"),
    plan_bucket="delegation-prod-plans-123456789012-eu-central-1",
    polaris_url="https://polaris.example.com/api/catalog",
    polaris_secret_arn=ACCOUNT.format(service="secretsmanager", rest="secret:delegation-prod-polaris-principal-AbCdEf"),
    polaris_scope="PRINCIPAL_ROLE:ALL",
    polaris_token_url="https://polaris.example.com/api/catalog/v1/oauth/tokens",
    emr_application_id="00f1a2b3c4d5e6f7",
    emr_job_role_arn="arn:aws:iam::123456789012:role/delegation-prod-job",
    emr_entry_point="s3://cdk-hnb659fds-assets-123456789012-eu-central-1/" + "a" * 64 + ".py",
    emr_spark_parameters=" ".join(
        f"--conf {setting}"
        for setting in (
            "spark.archives=s3://cdk-hnb659fds-assets-123456789012-eu-central-1/" + "a" * 64 + ".zip#package",
            "spark.emr-serverless.driverEnv.PYTHONPATH=./package",
            "spark.executorEnv.PYTHONPATH=./package",
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON=/usr/bin/python3.13",
            "spark.executorEnv.PYSPARK_PYTHON=/usr/bin/python3.13",
            "spark.speculation=false",
        )
    ),
    client_subject="CN=polaris,O=Example",
    client_issuer="CN=Example Private CA,O=Example",
    client_serials="0a:1b,2c:3d",
    operator_subjects="CN=operator,O=Example;CN=night shift,O=Example",
    token_issuer="https://issuer.example.com",
    token_jwks_url="https://issuer.example.com/jwks.json",
    token_audience="polaris-delegation-service",
    properties=default_properties(),
    behaviors="acme.delegation.behaviors:behaviors",
)


def test_a_resource_that_no_function_gets_is_refused() -> None:
    with pytest.raises(TypeError, match="no function has queue_ulr"):
        DEPLOYMENT.replaced(queue_ulr="https://sqs")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_resource_that_is_none_yields_no_variable(name: str) -> None:
    bare = environment(name, Resources())
    assert all(value and value != "None" for value in bare.values())
    assert "DELEGATION_POLARIS_TOKEN_URL" not in environment(name, DEPLOYMENT.replaced(polaris_token_url=None))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_variables_fit_into_the_quota_of_lambda(name: str) -> None:
    """AWS Lambda developer guide, "Lambda quotas": all variables of a function have at most 4 KB."""
    deployed = DEPLOYMENT.replaced(settings_object="s3://cdk-assets-123456789012-eu-central-1/" + "a" * 64 + ".json")
    assert sum(len(key) + len(value) for key, value in environment(name, deployed).items()) < 4096


def test_only_the_authorizer_gets_the_settings_of_client_identities() -> None:
    identities = ("DELEGATION_CLIENT_", "DELEGATION_OPERATOR", "DELEGATION_TOKEN_")
    found = {name for name in FUNCTIONS if any(key.startswith(identities) for key in environment(name, DEPLOYMENT))}
    assert found == {"authorizer"}


def test_the_spark_parameters_contain_the_variables_of_driver_and_executors() -> None:
    arguments = shlex.split(environment("start_job", DEPLOYMENT)["DELEGATION_EMR_SPARK_PARAMETERS"])
    settings = dict(word.split("=", 1) for word in arguments if word != "--conf")
    assert settings["spark.speculation"] == "false"
    for prefix, executor in (("spark.emr-serverless.driverEnv.", False), ("spark.executorEnv.", True)):
        given = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
        assert given.items() >= spark_environment(DEPLOYMENT, executor=executor).items()
        assert given.keys() - spark_environment(DEPLOYMENT, executor=executor) == {"PYTHONPATH", "PYSPARK_PYTHON"}
    assert json.loads(settings["spark.emr-serverless.driverEnv.DELEGATION_PROPERTIES"]) == default_properties()


def test_the_functions_that_use_behaviors_get_the_added_ones() -> None:
    found = {name for name in FUNCTIONS if "DELEGATION_BEHAVIORS" in environment(name, DEPLOYMENT)}
    assert found == set(FUNCTIONS) - {"api", "authorizer", "notifier"}


def test_only_the_notifier_gets_the_keys_of_callbacks_and_what_ends_tasks_gets_their_queue() -> None:
    variables = {name: environment(name, DEPLOYMENT) for name in FUNCTIONS}
    assert {name for name in FUNCTIONS if "DELEGATION_CALLBACK_KEYS" in variables[name]} == {"notifier"}
    senders = {name for name in FUNCTIONS if "DELEGATION_NOTIFICATION_QUEUE_URL" in variables[name]}
    assert senders == set(FUNCTIONS) - {"authorizer", "dispatcher", "start_job", "notifier"}
    assert {name for name in FUNCTIONS if "DELEGATION_EVENT_QUEUE_URL" in variables[name]} == senders
    assert {name for name in FUNCTIONS if "DELEGATION_APART_QUEUE_URL" in variables[name]} == {"sweeper"}
    assert "DELEGATION_NOTIFICATION_QUEUE_URL" not in environment("api", Resources())


def test_every_process_that_chooses_an_engine_has_the_operators_choice() -> None:
    """An inline attempt hands the files of an expiry or a removal over to Spark, and must know if there is one."""
    given = DEPLOYMENT.replaced(inline_max_files=7, spark="off")
    variables = {name: environment(name, given) for name in FUNCTIONS}
    choosing = {name for name in FUNCTIONS if "DELEGATION_PLAN_BUCKET" in variables[name]} - {"start_job"}
    assert choosing == {"api", "prepare", "run_inline"}
    chosen = {
        name: [variables[name].get(f"DELEGATION_{one}") for one in ("INLINE_MAX_FILES", "SPARK")] for name in choosing
    }
    assert chosen == {name: ["7", "off"] for name in choosing}


def test_the_default_properties_are_those_of_the_proposal() -> None:
    policies = policies_of(default_properties())
    assert policies.lease.lost_timeout.total_seconds() == 3600
    assert policies.retry("ANY").max_attempts == 5
    purge = policies.retry("TABLE_PURGE")
    assert (purge.max_attempts, purge.initial_backoff.total_seconds(), purge.max_backoff.total_seconds()) == (
        10,
        60,
        3600,
    )


def test_the_lease_of_acquire_lasts_for_prepare() -> None:
    assert FUNCTIONS["prepare"].timeout_seconds <= FUNCTIONS["acquire"].timeout_seconds


def test_the_sweeper_ends_before_its_next_run_and_a_synchronous_call_before_the_gateway_times_out() -> None:
    assert FUNCTIONS["sweeper"].timeout_seconds <= 60
    assert Resources()["synchronous_budget_seconds"] < 29 < FUNCTIONS["api"].timeout_seconds


def test_a_driver_has_what_an_expiry_or_a_removal_of_its_job_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELEGATION_")]:
        monkeypatch.delenv(name)
    properties = {"delegation.expiry.least-snapshots": "3", "delegation.orphan-files.max-files": "7"}
    given = DEPLOYMENT.replaced(properties=properties)
    for name, value in {**spark_environment(given), "AWS_DEFAULT_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        client = boto3.client("secretsmanager")
        secret = client.create_secret(Name="polaris", SecretString='{"client_id": "id", "client_secret": "key"}')["ARN"]
        monkeypatch.setenv("DELEGATION_POLARIS_SECRET_ARN", secret)
        tasks = job_tasks()
        expiry, removal = expiry_behavior(tasks), orphans_behavior(tasks)
    assert (expiry.floor.snapshots, expiry.plans is not None, expiry.lost_refs is not None) == (3, True, True)
    assert (removal.limits.approval.max_files, removal.plans is not None) == (7, True)
    assert removal.settings.inline_max_files == expiry.settings.inline_max_files == given["inline_max_files"]
