"""What LocalStack's community edition does not have, and what replaces it: the whole list.

A resource type that LocalStack does not create and that is not here makes the test fail; so does an entry that no stack
has. Everything else of the templates is deployed as synthesised, but for the edits below the list.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tests.localstack.templates import Replaced, Template, changed, replaced_text

ACCOUNT: Final = "000000000000"
REGION: Final = "us-east-1"
"""LocalStack's account, and the region in which the stacks are deployed."""
APPLICATION_ID: Final = "00local0spark0app"
_FRONT: Final = "the local stack's HTTPS front, which ends mutual TLS and calls the functions as API Gateway does"
_NOT_ATTACHED: Final = "an invocation of the authorizer's function: this edition attaches none to a method"
_NO_NETWORK: Final = "nothing: LocalStack has no network to filter or to log"
_SHOWN: Final = "nothing: it shows what others measure"
REPLACED: Final = (
    Replaced(
        "AWS::EMRServerless::Application",
        "the local stack's endpoint of EMR Serverless, which runs spark-submit",
        attributes={
            "ApplicationId": APPLICATION_ID,
            "Arn": f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/{APPLICATION_ID}",
        },
    ),
    Replaced("AWS::ApiGateway::Authorizer", _NOT_ATTACHED, ref="authorizer"),
    Replaced("AWS::ApiGateway::DomainNameV2", _FRONT),
    Replaced("AWS::ApiGateway::DomainNameAccessAssociation", _FRONT),
    Replaced("AWS::ApiGateway::BasePathMappingV2", _FRONT),
    Replaced(
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
        _FRONT,
        attributes={"DNSName": "localhost", "LoadBalancerFullName": "app/front/0123456789abcdef"},
    ),
    Replaced("AWS::ElasticLoadBalancingV2::Listener", _FRONT),
    Replaced("AWS::ElasticLoadBalancingV2::ListenerRule", _FRONT),
    Replaced(
        "AWS::ElasticLoadBalancingV2::TargetGroup",
        _FRONT,
        attributes={"TargetGroupFullName": "targetgroup/front/0123456789abcdef"},
    ),
    Replaced("AWS::ElasticLoadBalancingV2::TrustStore", _FRONT),
    Replaced(
        "Custom::EndpointAddresses",
        "two addresses of the VPC: LocalStack's endpoints have no network interfaces",
        attributes={"Address0": "10.64.0.10", "Address1": "10.64.4.10"},
    ),
    Replaced("AWS::EC2::SecurityGroupIngress", _NO_NETWORK),
    Replaced("AWS::EC2::SecurityGroupEgress", _NO_NETWORK),
    Replaced("AWS::EC2::FlowLog", _NO_NETWORK),
    Replaced("AWS::CloudWatch::Dashboard", _SHOWN),
    Replaced("AWS::Logs::QueryDefinition", _SHOWN),
)
POLARIS: Final = "https://polaris.localstack.internal/api/catalog"
JWKS: Final = "https://issuer.localstack.internal/.well-known/jwks.json"
"""Addresses in the synthesised templates, which settings accept with https alone."""
EDITS: Final = {
    "AWS::ApiGateway::Method, AuthorizationType": "NONE, because the authorizer is taken out",
    "AWS::Lambda::Function, Environment": "AWS_ENDPOINT_URL_EMR_SERVERLESS of functions that know the EMR application",
    "addresses of Polaris and of the token issuer": "those of the local stack's stand-ins",
}
"""What is changed in resources that LocalStack creates, and into what."""


def edited(template: Template, addresses: Mapping[str, str], emr_url: str) -> Template:
    """Return the template with the edits; `addresses` has the stand-ins' by those of the synthesised templates."""
    for resource_type, change in _changes(emr_url).items():
        template = changed(template, resource_type, change)
    return replaced_text(template, addresses)


def _changes(emr_url: str) -> dict[str, Callable[[Template], None]]:
    return {"AWS::ApiGateway::Method": _open, "AWS::Lambda::Function": partial(_call_our_emr, emr_url=emr_url)}


def _open(method: Template) -> None:
    if method["AuthorizationType"] == "CUSTOM":
        method["AuthorizationType"] = "NONE"
        del method["AuthorizerId"]


def _call_our_emr(function: Template, *, emr_url: str) -> None:
    variables: dict[str, Any] = function.get("Environment", {}).get("Variables", {})
    if "DELEGATION_EMR_APPLICATION_ID" in variables:
        variables["AWS_ENDPOINT_URL_EMR_SERVERLESS"] = emr_url
