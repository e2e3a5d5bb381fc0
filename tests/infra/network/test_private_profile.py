"""The private profile: nothing but Polaris reaches the load balancer, and nothing but that the API."""

from typing import Any

import pytest

from infra.endpoint_addresses import addresses
from infra.environment.context import default_context
from infra.settings import Settings
from tests.infra.conftest import TEMPLATES_ALONE

GROUP = "AWS::EC2::SecurityGroup"


def group_named(network: Any, description: str) -> tuple[str, dict[str, Any]]:
    (found,) = [
        (name, body["Properties"])
        for name, body in network.resources(GROUP).items()
        if description in body["Properties"]["GroupDescription"]
    ]
    return found


def rules_into(network: Any, description: str) -> list[dict[str, Any]]:
    """Return all rules that admit somebody to a group, inline ones and separate ones."""
    name, group = group_named(network, description)
    apart = [
        body["Properties"]
        for body in network.document["Resources"].values()
        if body["Type"] == "AWS::EC2::SecurityGroupIngress"
        and body["Properties"]["GroupId"] == {"Fn::GetAtt": [name, "GroupId"]}
    ]
    return [*group.get("SecurityGroupIngress", []), *apart]


def imported(network: Any, value: dict[str, str]) -> Any:
    """Return what an import of the service stack is in the network stack."""
    return network.document["Outputs"][value["Fn::ImportValue"].partition(":")[2]]["Value"]


def endpoint_id(network: Any) -> str:
    (found,) = [
        name
        for name, body in network.resources("AWS::EC2::VPCEndpoint").items()
        if body["Properties"]["ServiceName"]["Fn::Join"][1][-1] == ".execute-api"
    ]
    return str(found)


def test_the_endpoint_lets_through_calls_of_this_account_s_apis_alone(network: Any) -> None:
    endpoint = network.resources("AWS::EC2::VPCEndpoint")[endpoint_id(network)]
    (allowed,) = endpoint["Properties"]["PolicyDocument"]["Statement"]
    assert allowed["Action"] == "execute-api:Invoke"
    parts = allowed["Resource"]["Fn::Join"][1]
    assert [part["Ref"] for part in parts if isinstance(part, dict)] == [
        "AWS::Partition",
        "AWS::Region",
        "AWS::AccountId",
    ]
    assert parts[-1] == ":*"


def test_only_the_ranges_of_the_settings_reach_the_load_balancer(network: Any) -> None:
    (rule,) = rules_into(network, "reach the load balancer")
    assert (rule["CidrIp"], rule["FromPort"], rule["ToPort"]) == ("192.0.2.0/24", 443, 443)


def test_only_the_load_balancer_reaches_the_endpoint_of_the_api(network: Any) -> None:
    (rule,) = rules_into(network, "The load balancer reaches the API")
    balancer, _ = group_named(network, "reach the load balancer")
    assert rule["SourceSecurityGroupId"] == {"Fn::GetAtt": [balancer, "GroupId"]}
    endpoint = network.resources("AWS::EC2::VPCEndpoint")[endpoint_id(network)]["Properties"]
    name, _ = group_named(network, "The load balancer reaches the API")
    assert endpoint["SecurityGroupIds"] == [{"Fn::GetAtt": [name, "GroupId"]}]
    assert endpoint["PrivateDnsEnabled"] is False


def test_nothing_reaches_functions_and_jobs(network: Any) -> None:
    assert rules_into(network, "Functions and Spark jobs that call Polaris") == []


def test_no_group_admits_everybody_and_only_workers_reach_anywhere(network: Any) -> None:
    for body in network.document["Resources"].values():
        properties = body.get("Properties", {})
        incoming = [properties] if body["Type"] == "AWS::EC2::SecurityGroupIngress" else []
        for rule in [*properties.get("SecurityGroupIngress", []), *incoming]:
            assert rule.get("CidrIp") != "0.0.0.0/0"
            assert "CidrIpv6" not in rule
    open_ended = [
        body["Properties"]["GroupDescription"]
        for body in network.resources(GROUP).values()
        if any(rule.get("CidrIp") == "0.0.0.0/0" for rule in body["Properties"].get("SecurityGroupEgress", []))
    ]
    assert open_ended == ["Functions and Spark jobs that call Polaris"]


@pytest.mark.parametrize("kind", ["AWS::ApiGateway::RestApi", "AWS::ApiGateway::DomainNameV2"])
def test_api_and_domain_are_private_and_refuse_every_other_endpoint(service: Any, network: Any, kind: str) -> None:
    properties = service.one(kind)["Properties"]
    assert properties["EndpointConfiguration"]["Types"] == ["PRIVATE"]
    (allow, deny) = properties["Policy"]["Statement"]
    assert (allow["Effect"], deny["Effect"]) == ("Allow", "Deny")
    assert deny["Principal"] == {"AWS": "*"}
    assert deny["Resource"] == "execute-api:/*"
    (condition,) = deny["Condition"].values()
    assert imported(network, condition["aws:SourceVpce"]) == {"Ref": endpoint_id(network)}
    assert set(deny["Condition"]) == {"StringNotEquals"}


def test_the_domain_can_be_used_by_that_endpoint_alone(service: Any, network: Any) -> None:
    access = service.one("AWS::ApiGateway::DomainNameAccessAssociation")["Properties"]
    assert imported(network, access["AccessAssociationSource"]) == {"Ref": endpoint_id(network)}
    mapping = service.one("AWS::ApiGateway::BasePathMappingV2")["Properties"]
    assert "BasePath" not in mapping


def test_paths_have_the_prefix_of_the_proposal(service: Any) -> None:
    by_parent = {
        body["Properties"]["PathPart"]: body["Properties"]["ParentId"].get("Ref")
        for body in service.resources("AWS::ApiGateway::Resource").values()
    }
    assert set(by_parent) == {"delegation-service", "api", "{proxy+}"}
    names = {
        body["Properties"]["PathPart"]: name for name, body in service.resources("AWS::ApiGateway::Resource").items()
    }
    assert by_parent["{proxy+}"] == names["api"]
    assert by_parent["api"] == names["delegation-service"]


def test_the_load_balancer_is_internal_and_verifies_certificates(service: Any) -> None:
    kind = "AWS::ElasticLoadBalancingV2::"
    balancer = service.one(f"{kind}LoadBalancer")["Properties"]
    assert balancer["Scheme"] == "internal"
    attributes = {one["Key"]: one["Value"] for one in balancer["LoadBalancerAttributes"]}
    assert attributes["access_logs.s3.enabled"] == attributes["connection_logs.s3.enabled"] == "true"
    assert attributes["routing.http.drop_invalid_header_fields.enabled"] == "true"
    listener = service.one(f"{kind}Listener")["Properties"]
    (store,) = service.resources(f"{kind}TrustStore")
    assert listener["MutualAuthentication"] == {
        "Mode": "verify",
        "TrustStoreArn": {"Ref": store},
        "IgnoreClientCertificateExpiry": False,
    }
    assert listener["Protocol"] == "HTTPS"
    assert "TLS13" in listener["SslPolicy"]
    # What is not for this host and path is answered by the load balancer.
    assert [action["Type"] for action in listener["DefaultActions"]] == ["fixed-response"]


def test_the_load_balancer_knows_the_revocation_lists_before_it_listens(service: Any) -> None:
    kind = "AWS::ElasticLoadBalancingV2::"
    contents = service.one(f"{kind}TrustStoreRevocation")["Properties"]["RevocationContents"]
    assert [(one["S3Key"], one["RevocationType"]) for one in contents] == [
        ("lists/ca.crl", "CRL"),
        ("people.crl", "CRL"),
    ]
    (name,) = service.resources(f"{kind}TrustStoreRevocation")
    assert name in service.one(f"{kind}Listener")["DependsOn"]


def test_only_the_domains_host_and_the_apis_paths_are_forwarded_to_the_endpoint(service: Any, network: Any) -> None:
    kind = "AWS::ElasticLoadBalancingV2::"
    rule = service.one(f"{kind}ListenerRule")["Properties"]
    conditions = {one["Field"]: one for one in rule["Conditions"]}
    assert conditions["host-header"]["HostHeaderConfig"]["Values"] == ["delegation.example.com"]
    paths = conditions["path-pattern"]["PathPatternConfig"]["Values"]
    assert paths == ["/delegation-service/api", "/delegation-service/api/*"]
    targets = service.one(f"{kind}TargetGroup")["Properties"]
    assert (targets["Protocol"], targets["TargetType"]) == ("HTTPS", "ip")
    for index, target in enumerate(targets["Targets"]):
        (_, attribute) = imported(network, target["Id"])["Fn::GetAtt"]
        assert attribute == f"Address{index}"
    assert len(targets["Targets"]) == 2


def test_the_vpc_needs_no_way_to_the_internet(network: Any) -> None:
    present = {body["Type"] for body in network.document["Resources"].values()}
    assert not {"AWS::EC2::InternetGateway", "AWS::EC2::NatGateway"} & present
    services = {
        body["Properties"]["ServiceName"]["Fn::Join"][1][-1].removeprefix(".")
        for body in network.resources("AWS::EC2::VPCEndpoint").values()
    }
    assert services == {"dynamodb", "execute-api", "logs", "s3", "secretsmanager", "sqs"}


def test_the_load_balancers_of_this_account_write_logs_under_two_prefixes(data: Any) -> None:
    granted = [
        statement
        for body in data.resources("AWS::S3::BucketPolicy").values()
        for statement in body["Properties"]["PolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "logdelivery.elasticloadbalancing.amazonaws.com"}
    ]
    assert [one["Action"] for one in granted] == ["s3:PutObject"]
    assert "aws:SourceArn" in granted[0]["Condition"]["ArnLike"]
    assert len(granted[0]["Resource"]) == 2


def test_the_network_refuses_termination(network: Any) -> None:
    assert network.stack.termination_protection


class DescribedInterfaces:
    """The EC2 client of boto3; it answers in another order than it is asked."""

    def describe_network_interfaces(self, *, NetworkInterfaceIds: list[str]) -> dict[str, Any]:
        return {
            "NetworkInterfaces": [
                {"NetworkInterfaceId": one, "PrivateIpAddress": f"10.0.0.{len(one)}"}
                for one in reversed(NetworkInterfaceIds)
            ]
        }


def test_the_addresses_are_in_the_order_of_the_interfaces() -> None:
    assert addresses(DescribedInterfaces(), ["eni-1", "eni-22"]) == {"Address0": "10.0.0.5", "Address1": "10.0.0.6"}


VPC = "vpc-0a1b2c3d4e5f60718"
SUBNETS = ["subnet-0a1b2c3d4e5f60718", "subnet-0b1c2d3e4f5061728"]


def test_in_an_existing_vpc_nothing_is_looked_up_and_groups_and_endpoint_are_of_it(node: str) -> None:
    from aws_cdk import App
    from aws_cdk.assertions import Template

    from infra.constructs.logs import LogKeeping
    from infra.stacks.network import NetworkStack

    given = {"delegation:vpc-id": VPC, "delegation:subnet-ids": ",".join(SUBNETS)}
    settings = Settings.from_context({**default_context(), **TEMPLATES_ALONE, **given})
    stack = NetworkStack(App(), "Network", settings=settings, keeping=LogKeeping(30))
    resources: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
    kinds = {body["Type"] for body in resources.values()}
    assert "AWS::EC2::VPC" not in kinds
    assert "AWS::EC2::Subnet" not in kinds
    groups = [body["Properties"] for body in resources.values() if body["Type"] == "AWS::EC2::SecurityGroup"]
    assert groups
    assert {group["VpcId"] for group in groups} == {VPC}
    [endpoint] = [body["Properties"] for body in resources.values() if body["Type"] == "AWS::EC2::VPCEndpoint"]
    assert (endpoint["VpcId"], endpoint["SubnetIds"]) == (VPC, SUBNETS)
