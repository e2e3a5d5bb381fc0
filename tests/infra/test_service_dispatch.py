"""The deployed queue, state machine and Spark application."""

import json
import re
from typing import Any

from delegation.orchestration.job_runs import READS
from infra.environment.functions import FUNCTIONS, STATE_MACHINE_DEFINITION


def test_the_visibility_time_out_is_six_dispatcher_time_outs_and_dead_letters_are_kept(service: Any) -> None:
    (queue,) = [
        body["Properties"]
        for body in service.resources("AWS::SQS::Queue").values()
        if "RedrivePolicy" in body["Properties"]
    ]
    assert queue["VisibilityTimeout"] >= 6 * FUNCTIONS["dispatcher"].timeout_seconds
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
    dead_letters = service.document["Resources"][queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]]
    assert dead_letters["Properties"]["MessageRetentionPeriod"] == 14 * 24 * 3600


def test_queues_are_encrypted_and_accept_tls_only(service: Any) -> None:
    queues = service.resources("AWS::SQS::Queue")
    assert all(body["Properties"]["SqsManagedSseEnabled"] is True for body in queues.values())
    guarded = set()
    for policy in service.resources("AWS::SQS::QueuePolicy").values():
        (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        guarded |= {reference["Ref"] for reference in policy["Properties"]["Queues"]}
    assert guarded == set(queues)


def test_only_failed_messages_of_a_batch_are_delivered_again(service: Any) -> None:
    mapping = service.one("AWS::Lambda::EventSourceMapping")["Properties"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    dispatcher = service.document["Resources"][mapping["FunctionName"]["Ref"]]["Properties"]
    assert dispatcher["Handler"] == FUNCTIONS["dispatcher"].handler


def test_the_machine_has_the_definition_that_the_local_stack_executes(service: Any) -> None:
    machine = service.one("AWS::StepFunctions::StateMachine")["Properties"]
    assert machine["DefinitionString"] == STATE_MACHINE_DEFINITION.read_text(encoding="utf-8")
    assert machine["StateMachineType"] == "STANDARD"


def test_every_placeholder_of_the_definition_becomes_the_function_of_that_name(service: Any) -> None:
    machine = service.one("AWS::StepFunctions::StateMachine")["Properties"]
    substitutions = machine["DefinitionSubstitutions"]
    assert set(substitutions) == set(re.findall(r"\$\{(\w+)\}", machine["DefinitionString"]))
    for placeholder, arn in substitutions.items():
        handler = service.document["Resources"][arn["Fn::GetAtt"][0]]["Properties"]["Handler"]
        step = handler.rpartition(".")[2]
        assert placeholder.lower() == f"{step.replace('_', '')}functionarn"


def test_steps_are_retried_on_errors_of_lambda_and_purges_are_not_started_twice(service: Any) -> None:
    states = json.loads(service.one("AWS::StepFunctions::StateMachine")["Properties"]["DefinitionString"])["States"]
    tasks = {name: state for name, state in states.items() if state["Type"] == "Task"}
    retried = {
        name: {error: rule for rule in state["Retry"] for error in rule["ErrorEquals"]} for name, state in tasks.items()
    }
    for name in tasks.keys() - {"RunInline", "MakeDue"}:
        rules = {retried[name][error]["MaxAttempts"] for error in ("Lambda.ServiceException", "StoreUnavailable")}
        assert rules == {tasks[name]["Retry"][1]["MaxAttempts"]}
        assert all(rule["BackoffRate"] >= 2 and rule["MaxDelaySeconds"] <= 60 for rule in tasks[name]["Retry"])
    assert set(retried["RunInline"]) == {"Lambda.TooManyRequestsException"}
    assert set(retried["MakeDue"]) == {"Lambda.TooManyRequestsException", "States.ALL"}


def test_the_dispatcher_starts_this_machine(service: Any) -> None:
    machine = service.one("AWS::StepFunctions::StateMachine")["Properties"]
    dispatcher = service.one("AWS::Lambda::Function", Handler=FUNCTIONS["dispatcher"].handler)["Properties"]
    arn = dispatcher["Environment"]["Variables"]["DELEGATION_STATE_MACHINE_ARN"]
    assert arn["Fn::Join"][1][-1].endswith(f":stateMachine:{machine['StateMachineName']}")


def test_the_machine_logs_events_without_their_data(service: Any) -> None:
    logging = service.one("AWS::StepFunctions::StateMachine")["Properties"]["LoggingConfiguration"]
    assert (logging["IncludeExecutionData"], logging["Level"]) == (False, "ALL")
    group = logging["Destinations"][0]["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"][0]
    prefix, suffix = service.document["Resources"][group]["Properties"]["LogGroupName"]["Fn::Join"][1]
    assert prefix == "/aws/vendedlogs/states/polaris-delegation-prod-purge-"
    assert suffix == {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}


def test_the_machine_may_invoke_only_its_steps(service: Any) -> None:
    machine = service.one("AWS::StepFunctions::StateMachine")["Properties"]
    role = service.document["Resources"][machine["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
    statements = [one for policy in role["Policies"] for one in policy["PolicyDocument"]["Statement"]]
    (invoking,) = [one for one in statements if one["Action"] == "lambda:InvokeFunction"]
    assert sorted(json.dumps(arn) for arn in invoking["Resource"]) == sorted(
        json.dumps(arn) for arn in machine["DefinitionSubstitutions"].values()
    )


def test_the_spark_application_stops_when_idle_and_has_a_maximum_capacity(service: Any) -> None:
    application = service.one("AWS::EMRServerless::Application")["Properties"]
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
    assert application["MaximumCapacity"] == {"Cpu": "64 vCPU", "Memory": "256 GB"}
    assert "InitialCapacity" not in application
    assert application["SchedulerConfiguration"] == {"MaxConcurrentRuns": 15, "QueueTimeoutMinutes": 360}


def test_jobs_run_in_the_vpc_with_the_python_of_the_package(service: Any) -> None:
    application = service.one("AWS::EMRServerless::Application")["Properties"]
    assert len(application["NetworkConfiguration"]["SubnetIds"]) == 2
    starter = service.one("AWS::Lambda::Function", Handler=FUNCTIONS["start_job"].handler)["Properties"]
    parameters = json.dumps(starter["Environment"]["Variables"]["DELEGATION_EMR_SPARK_PARAMETERS"])
    for name in ("driverEnv.PYSPARK_PYTHON", "driverEnv.PYSPARK_DRIVER_PYTHON", "executorEnv.PYSPARK_PYTHON"):
        assert f"{name}=/usr/bin/python3.13 " in parameters
    assert "DELEGATION_PROPERTIES" not in parameters
    assert "driverEnv.DELEGATION_SETTINGS_OBJECT=" in parameters


def test_a_job_gets_the_arn_of_its_secret_and_not_the_secret(service: Any) -> None:
    starter = service.one("AWS::Lambda::Function", Handler=FUNCTIONS["start_job"].handler)["Properties"]
    parameters = json.dumps(starter["Environment"]["Variables"]["DELEGATION_EMR_SPARK_PARAMETERS"])
    assert "DELEGATION_POLARIS_SECRET_ARN" in parameters
    assert "{{resolve:" not in parameters
    assert "spark.speculation=false" in parameters


def test_the_policy_of_a_run_takes_from_the_role_nothing_but_the_writing_of_other_folders(service: Any) -> None:
    """What the role allows and the policy of a run does not would be denied to every job."""
    starter = service.one("AWS::Lambda::Function", Handler=FUNCTIONS["start_job"].handler)["Properties"]
    role_id = starter["Environment"]["Variables"]["DELEGATION_EMR_JOB_ROLE_ARN"]["Fn::GetAtt"][0]
    role = service.document["Resources"][role_id]["Properties"]
    statements = [one for policy in role["Policies"] for one in policy["PolicyDocument"]["Statement"]]
    actions = {
        action
        for one in statements
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    }
    assert actions == {*READS, "s3:PutObject"}
    assert "DELEGATION_PLAN_BUCKET" in starter["Environment"]["Variables"]
