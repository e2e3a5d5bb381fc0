"""A Lambda function of the deployment alone: it returns the private addresses of a VPC endpoint to CloudFormation.

A load balancer's targets are addresses, and CloudFormation knows only the network interfaces of an endpoint. The
template contains this text (AWS CloudFormation user guide, "Lambda-backed custom resources"), so it imports nothing of
the service; Lambda adds `cfnresponse`.
"""

from typing import Any

import boto3


def handler(event: dict[str, Any], context: Any) -> None:
    """Answer a custom resource with `Address0`, `Address1`, …, in the order of the given network interfaces."""
    import cfnresponse  # type: ignore[import-not-found]  # noqa: PLC0415 - only Lambda has it, for code in templates

    identity = event.get("PhysicalResourceId", event["LogicalResourceId"])
    if event["RequestType"] == "Delete":
        cfnresponse.send(event, context, cfnresponse.SUCCESS, {}, identity)
        return
    try:
        by_index = addresses(boto3.client("ec2"), event["ResourceProperties"]["NetworkInterfaceIds"])
    except Exception as error:  # noqa: BLE001 - without an answer CloudFormation would wait for its time-out
        cfnresponse.send(event, context, cfnresponse.FAILED, {}, identity, reason=f"{type(error).__name__}: {error}")
        return
    cfnresponse.send(event, context, cfnresponse.SUCCESS, by_index, identity)


def addresses(ec2: Any, ids: list[str]) -> dict[str, str]:
    """Return the private address of each interface by its attribute's name."""
    described = ec2.describe_network_interfaces(NetworkInterfaceIds=ids)["NetworkInterfaces"]
    by_id = {interface["NetworkInterfaceId"]: interface["PrivateIpAddress"] for interface in described}
    return {f"Address{index}": by_id[interface_id] for index, interface_id in enumerate(ids)}
