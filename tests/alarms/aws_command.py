"""`aws`, as far as the pages of the runbook use it, against a local stack: `python aws_command.py SERVICE OPERATION …`.

The file of ALARMS_DRILL says where the stack is, what CloudFormation would list, and where the functions' logs are.
Logs and the list are answered from these, everything else by the stack's own emulation. Options, `--query` and
`--output text` are those of the AWS CLI (AWS CLI User Guide, "Filtering output" and "Setting the output format").
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import boto3
import jmespath
from botocore import xform_name

_SERVICES = {"s3api": "s3"}


def parsed(words: list[str]) -> dict[str, Any]:
    """Return options by name; one without a value is True."""
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word.removeprefix("--")
            found[name] = True
        else:
            found[name] = word if found[name] is True else f"{found[name]} {word}"
    return found


def typed(shape: Any, value: Any) -> Any:
    """Return an option's text in the type of the operation's model."""
    match shape.type_name:
        case "integer" | "long":
            return int(value)
        case "boolean":
            return value is True or value == "true"
        case "list":
            return [typed(shape.member, one) for one in str(value).split()]
        case "structure":
            pairs = (pair.partition("=") for pair in str(value).split(","))
            return {key: typed(shape.members[key], text) for key, _, text in pairs}
        case _:
            return value


def called(site: dict[str, Any], service: str, operation: str, options: dict[str, Any]) -> Any:
    """Call the emulation, and return the answer of the model's operation."""
    endpoint = site["dynamodb"] if service == "dynamodb" else site["aws"]
    client: Any = boto3.client(  # the stubs overload it for literal names only
        _SERVICES.get(service, service),
        endpoint_url=endpoint,
        region_name=site["region"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    if operation.startswith("wait "):
        client.get_waiter(operation.removeprefix("wait ").replace("-", "_")).wait(TableName=options["table-name"])
        return None
    model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation.replace("-", "_")])
    members = {xform_name(name, "-"): (name, shape) for name, shape in model.input_shape.members.items()}
    if limit := options.pop("max-items", None):
        options["max-results" if "max-results" in members else "limit"] = limit
    given = {members[name][0]: typed(members[name][1], value) for name, value in options.items() if name in members}
    answer = getattr(client, operation.replace("-", "_"))(**given)
    answer.pop("ResponseMetadata", None)
    return answer


def tail(site: dict[str, Any], group: str, pattern: str) -> None:
    """Print the lines of a log that have a pattern's term."""
    term = pattern.strip('"')
    for line in Path(site["logs"], f"{group}.log").read_text(encoding="utf-8").splitlines():
        if term in line:
            sys.stdout.write(f"{line}\n")


def show(answer: Any, query: str | None, output: str) -> None:
    """Print an answer as the AWS CLI does."""
    found = jmespath.search(query, answer) if query else answer
    if output != "text":
        sys.stdout.write(json.dumps(found, indent=4, default=str) + "\n")
        return
    rows = found if isinstance(found, list) else [found]
    for row in rows if not rows or isinstance(rows[0], list) else [rows]:
        sys.stdout.write("\t".join(map(str, row)) + "\n")


def main(words: list[str]) -> int:
    site = json.loads(Path(os.environ["ALARMS_DRILL"]).read_text(encoding="utf-8"))
    service, operation, *rest = words
    if (service, operation) == ("logs", "tail"):
        tail(site, rest[0], parsed(rest[1:]).get("filter-pattern", ""))
        return 0
    if operation == "wait":
        operation, rest = f"wait {rest[0]}", rest[1:]
    options = parsed(rest)
    query, output = options.pop("query", None), options.pop("output", "json")
    if (service, operation) == ("cloudformation", "list-stack-resources"):
        answer: Any = {"StackResourceSummaries": site["resources"]}
    elif (service, operation) == ("lambda", "get-function-configuration"):
        answer = {"LoggingConfig": {"LogGroup": options["function-name"]}}
    else:
        answer = called(site, service, operation, options)
    if answer is not None:
        show(answer, query, output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
