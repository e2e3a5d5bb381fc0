"""The regional profile with keys of the customer: certificates at the domain, limited requests."""

import json
from typing import Any

import pytest

from infra.wildcards import wildcards
from tests.infra.conftest import REGIONAL
from tests.infra.test_service_functions import function, listed, statements

pytestmark = pytest.mark.long  # a deployment of its own is synthesized
KEY = REGIONAL["delegation:kms-key-arn"]


def test_callers_need_a_client_certificate(regional_service: Any) -> None:
    domain = regional_service.one("AWS::ApiGateway::DomainName")["Properties"]
    assert domain["SecurityPolicy"] == "TLS_1_2"
    assert domain["EndpointConfiguration"] == {"Types": ["REGIONAL"]}
    assert domain["MutualTlsAuthentication"]["TruststoreUri"]["Fn::Join"][1][-1] == "/truststore.pem"


def test_the_api_is_reachable_only_through_the_domain(regional_service: Any) -> None:
    api = regional_service.one("AWS::ApiGateway::RestApi")["Properties"]
    assert api["DisableExecuteApiEndpoint"] is True
    assert api["EndpointConfiguration"] == {"Types": ["REGIONAL"]}


def test_paths_have_the_prefix_of_the_proposal(regional_service: Any) -> None:
    mapping = regional_service.one("AWS::ApiGatewayV2::ApiMapping")["Properties"]
    assert mapping["ApiMappingKey"] == "delegation-service/api"
    assert regional_service.one("AWS::ApiGateway::Resource")["Properties"]["PathPart"] == "{proxy+}"


def test_the_firewall_limits_the_requests_of_one_address(regional_service: Any) -> None:
    firewall = regional_service.one("AWS::WAFv2::WebACL")["Properties"]
    (rule,) = firewall["Rules"]
    assert rule["Action"] == {"Block": {}}
    limit = rule["Statement"]["RateBasedStatement"]
    assert (limit["AggregateKeyType"], limit["Limit"], limit["EvaluationWindowSec"]) == ("IP", 30_000, 300)
    protected = regional_service.one("AWS::WAFv2::WebACLAssociation")["Properties"]
    assert "/stages/" in json.dumps(protected["ResourceArn"])


def test_certificates_come_from_api_gateway_and_no_header_is_believed(regional_service: Any) -> None:
    variables = function(regional_service, "authorizer")["Environment"]["Variables"]
    assert variables["DELEGATION_CLIENT_CERTIFICATE_SOURCE"] == "apigateway"
    assert "DELEGATION_CLIENT_VPC_ENDPOINTS" not in variables


def test_without_a_vpc_there_is_no_network_and_no_spark(regional: Any, regional_service: Any) -> None:
    """Jobs outside a VPC would not reach Polaris; the purges that need them are refused with the reason."""
    assert regional.network is None
    for name in ("api", "prepare"):
        properties = function(regional_service, name)
        assert properties["Environment"]["Variables"]["DELEGATION_SPARK"] == "off"
        assert "VpcConfig" not in properties
    assert "NetworkConfiguration" not in regional_service.one("AWS::EMRServerless::Application")["Properties"]


def test_the_record_of_the_domain_is_in_the_zone_of_the_settings(regional_service: Any) -> None:
    record = regional_service.one("AWS::Route53::RecordSet")["Properties"]
    assert (record["HostedZoneId"], record["Type"]) == ("Z0123456789", "A")


def test_the_accounts_log_role_can_be_left_alone(regional_service: Any) -> None:
    present = {body["Type"] for body in regional_service.document["Resources"].values()}
    assert "AWS::ApiGateway::Account" not in present


def test_another_stage_shares_no_name(service: Any, regional_service: Any) -> None:
    def named(stack: Any) -> set[str]:
        keys = ("AlarmName", "StateMachineName", "DashboardName", "Name", "QueryDefinitionName")
        values = [
            body["Properties"][key]
            for body in stack.document["Resources"].values()
            if body["Type"] != "AWS::ApiGateway::Authorizer" and body["Type"] != "AWS::Route53::RecordSet"
            for key in keys
            if isinstance(body.get("Properties", {}).get(key), str)
        ]
        return set(values)

    assert named(service)
    assert not named(service) & named(regional_service)


def test_the_customers_key_encrypts_queues_logs_and_topics(regional_service: Any) -> None:
    for body in regional_service.resources("AWS::SQS::Queue").values():
        assert body["Properties"]["KmsMasterKeyId"] == KEY
    for body in regional_service.resources("AWS::Logs::LogGroup").values():
        assert body["Properties"]["KmsKeyId"] == KEY
    assert regional_service.one("AWS::SNS::Topic")["Properties"]["KmsMasterKeyId"] == KEY
    monitoring = regional_service.one("AWS::EMRServerless::Application")["Properties"]["MonitoringConfiguration"]
    assert monitoring["ManagedPersistenceMonitoringConfiguration"] == {"Enabled": False}


@pytest.mark.parametrize(
    ("name", "actions"), [("api", {"kms:Decrypt", "kms:GenerateDataKey"}), ("dispatcher", {"kms:Decrypt"})]
)
def test_senders_and_receivers_may_use_the_key_through_sqs(regional_service: Any, name: str, actions: set[str]) -> None:
    through = [
        one
        for one in statements(regional_service, name)
        if "sqs." in json.dumps(one.get("Condition", {}).get("StringEquals", {}).get("kms:ViaService", ""))
    ]
    assert {action for one in through for action in listed(one["Action"])} == actions
    assert all(one["Resource"] == KEY for one in through)


def test_an_existing_key_is_used_and_none_created(regional: Any, synthesized: Any) -> None:
    document = synthesized(regional.data).document
    assert not [body for body in document["Resources"].values() if body["Type"] == "AWS::KMS::Key"]


def test_a_job_may_decrypt_what_the_bootstrap_bucket_has(regional_service: Any) -> None:
    (role,) = [
        body["Properties"]
        for body in regional_service.resources("AWS::IAM::Role").values()
        if "emr-serverless.amazonaws.com" in json.dumps(body["Properties"]["AssumeRolePolicyDocument"])
    ]
    allowed = [one for policy in role["Policies"] for one in policy["PolicyDocument"]["Statement"]]
    (decrypt,) = [one for one in allowed if one["Resource"] == REGIONAL["delegation:bootstrap-key-arn"]]
    assert decrypt["Action"] == "kms:Decrypt"
    assert "s3." in json.dumps(decrypt["Condition"])


def test_concurrency_is_reserved_where_the_settings_say(regional_service: Any) -> None:
    assert function(regional_service, "run_inline")["ReservedConcurrentExecutions"] == 20
    assert "ReservedConcurrentExecutions" not in function(regional_service, "api")


def test_no_template_allows_a_wildcard_of_actions_on_everything(regional: Any, synthesized: Any) -> None:
    for stack in (regional.data, regional.service):
        assert wildcards(synthesized(stack).document) == ()
