"""A deployment whose properties have the ends of tasks announced; one without has none of it."""

import json

from delegation.notifications.queue import Pool
from infra.environment.functions import FUNCTIONS
from tests.infra.conftest import SynthesizedStack
from tests.infra.test_service_functions import function


def test_without_settings_there_is_no_part_of_it(service: SynthesizedStack, data: SynthesizedStack) -> None:
    present = [
        body
        for stack in (service, data)
        for body in stack.document["Resources"].values()
        # The dashboards are the same in every deployment.
        if body["Type"] != "AWS::CloudWatch::Dashboard"
    ]
    text = json.dumps(present).lower()
    assert "notification" not in text.replace("notificationarn", "")
    assert "callback" not in text
    assert "events:putevents" not in text
    assert len(service.resources("AWS::Lambda::EventSourceMapping")) == 1


def test_each_queue_feeds_the_notifier_and_keeps_dead_letters(everything: dict[str, SynthesizedStack]) -> None:
    document = everything["service"].document["Resources"]
    mappings = everything["service"].resources("AWS::Lambda::EventSourceMapping").values()
    found = [
        body["Properties"]
        for body in mappings
        if document[body["Properties"]["FunctionName"]["Ref"]]["Properties"]["Handler"] == FUNCTIONS["notifier"].handler
    ]
    queues = {mapping["EventSourceArn"]["Fn::GetAtt"][0] for mapping in found}
    assert len(found) == len(queues) == len(Pool)
    for mapping in found:
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert 10 * mapping["BatchSize"] < FUNCTIONS["notifier"].timeout_seconds
        queue = document[mapping["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
        assert queue["VisibilityTimeout"] >= 6 * FUNCTIONS["notifier"].timeout_seconds
        assert queue["KmsMasterKeyId"]
        assert queue["RedrivePolicy"]["maxReceiveCount"] == 5


def test_the_variables_name_queue_bus_and_secret(everything: dict[str, SynthesizedStack]) -> None:
    variables = function(everything["service"], "notifier")["Environment"]["Variables"]
    assert variables["DELEGATION_EVENT_BUS"] == "ends"
    assert "DELEGATION_CALLBACK_KEYS" in variables
    for name in ("api", "sweeper", "complete", "run_inline"):
        present = function(everything["service"], name)["Environment"]["Variables"]
        assert {"DELEGATION_NOTIFICATION_QUEUE_URL", "DELEGATION_EVENT_QUEUE_URL"} <= present.keys()


def test_the_keys_are_an_empty_secret(everything: dict[str, SynthesizedStack]) -> None:
    found = [
        body
        for body in everything["data"].resources("AWS::SecretsManager::Secret").values()
        if "callbacks" in body["Properties"]["Description"]
    ]
    (secret,) = found
    assert secret["Properties"].keys().isdisjoint({"SecretString", "GenerateSecretString"})


def test_their_alarms_are_on_a_dashboard(everything: dict[str, SynthesizedStack]) -> None:
    shown = json.dumps(everything["service"].resources("AWS::CloudWatch::Dashboard"))
    alarms = set(everything["service"].resources("AWS::CloudWatch::Alarm"))
    assert {one for one in alarms if f'"{one}"' not in shown} == set()
