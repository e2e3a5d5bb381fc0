import json

import pytest
import typer

from delegation.cli.submit import parse_properties, parse_table
from tests.unit.cli.conftest import ACCEPTED, IDENTITY, TABLE, lines, sent
from tests.unit.client.service import SUCCEEDED, SYNCHRONOUS, TASK_ID, TASKS, json_answer, record, refusal

COMMANDS = (("submit",), ("expire",), ("orphans", "scan"))


def test_background_purge_sends_only_the_tables_identity(run, accepting, stack):
    result = run("submit", TABLE, "--stack", str(stack), "--property", "skipTrash=true", "--property", "outside=keep")
    assert result.exit_code == 0
    assert TASK_ID in result.stdout
    assert "without purge" in result.stdout
    body = sent(accepting)
    assert body["common_payload"]["operation_type"] == "TABLE_PURGE"
    assert body["common_payload"]["realm_identifier"] == "POLARIS"
    assert body["operation_parameters"] == {
        "table_identity": IDENTITY,
        "properties": {"skipTrash": "true", "outside": "keep"},
    }


def test_result_as_json_names_the_key(run, accepting, stack):
    (document,) = lines(run("submit", TABLE, "--stack", str(stack), "--json").stdout)
    assert document == ACCEPTED | {"idempotency_key": accepting.sent_keys(TASKS)[0]}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_same_command_with_the_same_key_sends_the_same_bytes(run, accepting, stack, command):
    for _ in range(2):
        run(*command, TABLE, "--stack", str(stack), "--key", "drop-orders-7")
    first, second = accepting.asked("POST", TASKS)
    assert first.content == second.content
    assert accepting.sent_keys(TASKS) == ["drop-orders-7", "drop-orders-7"]


def test_each_run_without_a_key_is_another_purge(run, accepting, stack):
    for _ in range(2):
        run("submit", TABLE, "--stack", str(stack))
    assert len(set(accepting.sent_keys(TASKS))) == 2


def test_synchronous_purge_loads_the_table_and_sends_no_credential(run, service, polaris, stack):
    service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
    result = run("submit", TABLE, "--sync", "--stack", str(stack), "--json")
    assert result.exit_code == 0
    (document,) = lines(result.stdout)
    counts = {"files_deleted": 7, "bytes_deleted": 9007199254740993, "files_kept": 0, "findings": []}
    assert document["execution_result"] == counts
    (request,) = service.asked("POST", SYNCHRONOUS)
    body = json.loads(request.content)
    assert body["common_payload"]["operation_type"] == "SYNCHRONOUS_TABLE_PURGE"
    assert body["operation_parameters"]["metadata"]["table-uuid"] == "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    assert body["operation_parameters"]["config"] == {}
    (lookup,) = [request for request in polaris.requests if request.url.path.endswith("/orders")]
    assert "X-Iceberg-Access-Delegation" not in lookup.headers


@pytest.mark.parametrize("name", ["dry-rnu", "DRY-RUN", "dry_run"])
def test_an_unknown_option_is_misuse_and_names_the_nearest_one(run, accepting, stack, name):
    refused = run("submit", TABLE, "--property", f"{name}=true", "--yes", "--stack", str(stack), "--json")
    document = json.loads(refused.stderr)
    assert (refused.exit_code, document["error_code"]) == (2, "MISUSE")
    assert f"{name}: is not an option of this operation; did you mean dry-run?" in document["message"]
    assert accepting.asked("POST", TASKS) == []


@pytest.mark.parametrize(
    "words", [("--dry-run",), ("--property", "dryRun=true"), ("--dry-run", "--property", "dry-run=true")]
)
def test_a_dry_run_is_sent_as_one_and_asks_nothing(run, accepting, stack, monkeypatch, words):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    left = run("submit", TABLE, *words, "--stack", str(stack))
    assert (left.exit_code, "drop it" in left.stdout) == (0, False)
    body = sent(accepting)
    assert body["operation_parameters"]["properties"] == {"dry-run": "true"}


@pytest.mark.parametrize("task_type", ["TABLE_EXPIRE_SNAPSHOTS", "ORPHAN_FILES"])
def test_a_dry_run_of_each_operation_is_sent_as_one(run, accepting, stack, task_type):
    assert run("submit", TABLE, "--type", task_type, "--dry-run", "--stack", str(stack)).exit_code == 0
    body = sent(accepting)
    assert body["operation_parameters"]["properties"] == {"dry-run": "true"}


@pytest.mark.parametrize(
    ("words", "reason"), [(("--property", "dryRun=false"), "contradicts --property"), (("--sync",), "needs --async")]
)
def test_a_dry_run_contradicts_what_deletes(run, accepting, stack, words, reason):
    refused = run("submit", TABLE, "--dry-run", *words, "--yes", "--stack", str(stack), "--json")
    assert (refused.exit_code, json.loads(refused.stderr)["error_code"]) == (2, "MISUSE")
    assert reason in json.loads(refused.stderr)["message"]
    assert [*accepting.asked("POST", TASKS), *accepting.asked("POST", SYNCHRONOUS)] == []


def test_dry_run_cannot_be_waited_for_in_one_call(run, service, polaris, stack):
    """The service answers such a request with 400: its 200 means that the files are deleted."""
    refused = run("submit", TABLE, "--sync", "--property", "dry-run=true", "--stack", str(stack))
    assert refused.exit_code == 2
    assert "--async" in refused.stderr
    assert service.asked("POST", SYNCHRONOUS) == []


@pytest.mark.parametrize(("deleted", "advised"), [(7, True), (0, False)])
def test_dropping_the_table_is_advised_only_if_files_were_deleted(run, service, polaris, stack, deleted, advised):
    result = {"files_deleted": deleted, "bytes_deleted": 0}
    service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED | {"execution_result": result}))
    waited = run("submit", TABLE, "--sync", "--yes", "--stack", str(stack))
    assert ("without purge" in waited.stdout) is advised


def test_failed_synchronous_purge_exits_with_1(run, service, polaris, stack):
    service.answer(
        "POST", SYNCHRONOUS, refusal(409, "GC_DISABLED", status="FAILED_TERMINAL", delegation_task_id=TASK_ID)
    )
    result = run("submit", TABLE, "--sync", "--stack", str(stack))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "GC_DISABLED" in result.stderr
    assert f"delegation tasks retry {TASK_ID}" in result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_waiting_follows_the_task_to_its_end(run, accepting, stack, command):
    steps = [record(), record(version=4, status="SUCCESS")]
    accepting.answer("GET", f"{TASKS}/{TASK_ID}", *(json_answer(200, step) for step in steps))
    result = run(*command, TABLE, "--wait", "--stack", str(stack), "--json")
    assert result.exit_code == 0
    assert [line["status"] for line in lines(result.stdout)] == ["QUEUED", "RUNNING", "SUCCESS"]


STATE = {"location": "s3://lake/orders", "table-uuid": "abc", "format-version": 2}
LOADED = {
    "metadata-location": "s3://lake/orders/metadata/7.metadata.json",
    "metadata": {**STATE, "table-uuid": "ABC", "snapshots": [{"id": 2**62}]},
    "config": {"s3.secret-access-key": "hunter4"},
}


@pytest.mark.parametrize("stdin", [True, False])
def test_given_metadata_is_sent_instead_of_a_lookup(run, accepting, stack, tmp_path, stdin):
    path = tmp_path / "loaded.json"
    path.write_text(json.dumps(LOADED))
    source = "-" if stdin else str(path)
    result = run("submit", TABLE, "--metadata", source, "--stack", str(stack), given=json.dumps(LOADED))
    assert result.exit_code == 0
    body = sent(accepting)
    assert body["operation_parameters"]["metadata_location"] == "s3://lake/orders/metadata/7.metadata.json"
    assert body["operation_parameters"]["metadata"] == STATE
    assert "hunter4" not in json.dumps(body)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), ("{", "is not JSON"), ("[]", "lacks"), ('{"metadata-location": "s3://x"}', "lacks")],
)
def test_unusable_metadata_is_refused_before_anything_is_sent(run, accepting, stack, tmp_path, content, reason):
    path = tmp_path / "loaded.json"
    if content is not None:
        path.write_text(content)
    result = run("submit", TABLE, "--metadata", str(path), "--stack", str(stack))
    assert result.exit_code == 1
    assert reason in result.stderr
    assert accepting.requests == []


@pytest.mark.parametrize("key", ["", "-x", "a b", "é", "a" * 256])
def test_key_outside_the_pattern_is_misuse(run, accepting, stack, key):
    result = run("submit", TABLE, "--key", key, "--stack", str(stack))
    assert result.exit_code == 2
    assert accepting.requests == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("c.n.t", ("c", ("n",), "t")),
        ("c.n1.n2.t", ("c", ("n1", "n2"), "t")),
        ("c.`n.1`.`t x`", ("c", ("n.1",), "t x")),
        ("`c`.n.t", ("c", ("n",), "t")),
    ],
)
def test_table_names_are_split_at_dots_outside_backquotes(text, parts):
    found = parse_table(text)
    assert (found.catalog, found.namespace, found.name) == parts


@pytest.mark.parametrize("text", ["", "t", "c.t", "c..t", ".n.t", "c.n.", "c.n.t.", "c.`n.t", "c.`n`x.t", "c.n`x`.t"])
def test_other_names_are_misuse(text):
    with pytest.raises(typer.BadParameter):
        parse_table(text)


@pytest.mark.parametrize("texts", [["x"], ["=y"], ["x=1", "x=2"]])
def test_other_or_repeated_properties_are_misuse(texts):
    with pytest.raises(typer.BadParameter):
        parse_properties(texts)


def test_at_a_terminal_the_command_asks_before_it_submits(run, accepting, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    refused = run("submit", TABLE, "--stack", str(stack), given="n\n")
    assert refused.exit_code == 1
    assert "deletes every file of lake.sales.eu.orders" in refused.stderr
    assert accepting.requests == []
    assert run("submit", TABLE, "--stack", str(stack), given="y\n").exit_code == 0
    assert run("submit", TABLE, "--stack", str(stack), "--yes").exit_code == 0


def payload_of(table):
    identity = {"catalog_name": "lake", "namespace_levels": ["sales", "eu"], "table_name": table}
    return json.dumps({"operation_parameters": {"table_identity": identity}})


def in_the_way():
    return refusal(409, "TASK_EXISTS", delegation_task_id=TASK_ID)


@pytest.mark.parametrize("mode", ["--async", "--sync"])
def test_a_purge_waits_for_the_task_of_a_clone_which_has_its_uuid(run, service, polaris, stack, mode):
    path, answer = (
        (TASKS, json_answer(202, ACCEPTED)) if mode == "--async" else (SYNCHRONOUS, json_answer(200, SUCCEEDED))
    )
    service.answer("POST", path, in_the_way(), in_the_way(), answer)
    clones = {"task_payload": payload_of("clone")}
    running, second = record(**clones), record(version=5, **clones)
    ended = [{**one, "status": "SUCCESS", "version": one["version"] + 1} for one in (running, second)]
    answers = (json_answer(200, one) for one in (running, ended[0], second, second, ended[1]))
    service.answer("GET", f"{TASKS}/{TASK_ID}", *answers)
    result = run("submit", TABLE, mode, "--stack", str(stack), "--key", "drop-orders-7")
    assert result.exit_code == 0, result.output
    assert f"Task {TASK_ID} purges lake.sales.eu.clone, a clone of {TABLE}" in result.stdout
    assert service.sent_keys(path) == ["drop-orders-7"] * 3


def test_a_purge_of_the_same_table_with_other_properties_is_not_waited_for(run, service, polaris, stack):
    service.answer("POST", TASKS, in_the_way())
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(task_payload=payload_of("orders"))))
    assert run("submit", TABLE, "--stack", str(stack)).exit_code == 1
    assert len(service.asked("POST", TASKS)) == 1


def test_a_task_of_a_clone_that_has_ended_and_is_in_the_way_still_is_an_error(run, service, polaris, stack):
    service.answer("POST", TASKS, in_the_way(), in_the_way())
    failed = record(task_payload=payload_of("clone"), status="FAILURE")
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, failed), json_answer(200, failed))
    assert run("submit", TABLE, "--stack", str(stack)).exit_code == 1
    assert len(service.asked("POST", TASKS)) == 2
