"""Moments of the former release: today's code reads all that it left, and brings it to the right end.

The former release's recordings were made by its own code, with `tests/golden/moments.py` in its tree.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from delegation.orchestration.dispatch import parse
from delegation.orchestration.failures import Step
from spark.run_task import _parser
from tests.contract.task_tables import moto
from tests.golden.moments import KEY, MOMENTS, restore, service
from tests.golden.record import FOLDER, MACHINE, MOMENTS_FOLDER, STALE, former_release, text_of_moment, without_texts

ADDED = {
    "tasks": {"purged_states", "received_bucket", "received_key", "requested_by", "steps_done", "target_key"},
    "records": {"identity_rule"},
}
"""What items have since the former release, which reads none of it and keeps it (test_rollback)."""


@cache
def former(name: str) -> dict[str, Any]:
    moment: dict[str, Any] = json.loads((former_release() / f"{name}.json").read_text(encoding="utf-8"))
    return moment


@cache
def today(name: str) -> dict[str, Any]:
    moment: dict[str, Any] = json.loads((MOMENTS_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return moment


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with moto() as found:
        yield found


def files_of_events() -> list[str]:
    """The files of the table that the moments purge, as a story purges it that nothing interrupts."""
    story = json.loads((FOLDER / "background.json").read_text(encoding="utf-8"))
    files: list[str] = story["deleted"]
    return files


@pytest.mark.parametrize("name", MOMENTS)
def test_what_goes_from_a_release_to_the_next_is_as_it_was(name: str, client: Any) -> None:
    assert without_texts(json.loads(text_of_moment(name, client))) == without_texts(today(name)), STALE


@pytest.mark.parametrize("name", MOMENTS)
def test_today_continues_what_the_former_release_left(name: str, client: Any) -> None:
    left = json.loads(json.dumps(former(name)))
    with service(client) as made:
        made.resume(restore(made, left))
        tasks = made.store.heads().tasks
        assert [task.status.value for task in tasks] == ["SUCCESS"] * len(tasks)
        assert made.deleted() == files_of_events()
        plans = {segment["id"] for task in tasks for segment in task.public()["plan_segments"]}
        assert {key.rsplit("/", 1)[0] for key in made.plans.objects if key.endswith("/index.json")} == plans
        assert plans >= {key.rsplit("/", 1)[0] for key in left["objects"] if key.endswith("/index.json")}
        for task in tasks:
            assert [row.version for row in made.history(task.task_id)] == list(range(1, task.version + 1))
        [purged] = [task for task in tasks if task.public().get("files_deleted")]
        assert purged.public()["files_deleted"] == len(files_of_events())
        asked = json.loads(purged.task_payload)["operation_parameters"]["properties"]
        assert made.submit(made.identity("events", **asked), KEY).task_id == purged.task_id
        assert not made.aws.messages


def test_every_moment_of_the_former_release_is_kept() -> None:
    assert {path.stem for path in former_release().glob("*.json")} - {MACHINE.stem, "defaults"} == MOMENTS.keys()
    assert {path.stem for path in MOMENTS_FOLDER.glob("*.json")} == MOMENTS.keys()


def test_messages_inputs_and_job_arguments_are_read_as_they_were_meant() -> None:
    task_id = former("started")["input"]["task_id"]
    [message] = former("queued")["messages"]
    assert parse(message) == (task_id, 1)
    for name in MOMENTS:
        if former(name)["input"]:
            step = Step.of(former(name)["input"])
            assert (step.task_id, step.n, step.attempt) == (task_id, 1, 0 if name == "started" else 1)
    for request in former("job_started")["jobs"].values():
        options = _parser().parse_args(request["jobDriver"]["sparkSubmit"]["entryPointArguments"])
        assert (options.task_id, options.attempt) == (task_id, 1)
        assert request["clientToken"] == request["name"] == f"{task_id}-1"


@pytest.mark.parametrize("name", ["queued", "started", "acquired", "prepared", "chosen", "job_started"])
def test_messages_inputs_and_job_requests_are_the_former_releases(name: str) -> None:
    """So the former release reads today's; what was added is read by nobody who does not know it."""
    for part in ("next", "input", "messages", "jobs", "job_states"):
        assert today(name)[part] == former(name)[part]


@pytest.mark.parametrize("table", ADDED)
def test_attributes_of_items_that_were_added_are_named_here(table: str) -> None:
    before, now = (
        {
            (name, next(iter(value)))
            for kind in MOMENTS
            for item in recorded(kind)[table]
            for name, value in item.items()
        }
        for recorded in (former, today)
    )
    assert before <= now, "an attribute is gone or has another type"
    assert {name for name, _ in now - before} == ADDED[table]


def test_plans_and_marks_are_laid_out_as_the_former_releases() -> None:
    def layout(moment: Mapping[str, Any]) -> dict[str, set[str]]:
        """Each object's name without its task, and the members of those that are JSON."""
        return {
            key.split("/", 1)[1]: set(json.loads(base64.b64decode(data))) if key.endswith(".json") else set()
            for key, data in moment["objects"].items()
        }

    for name in ("killed", "job_killed", "dry_run", "ended"):
        before, now = layout(former(name)), layout(today(name))
        differ = {key for key in now.keys() ^ before.keys() if not key.endswith("/estimate.json")}
        # Manifest lists have chunks of their own, which the former release deletes in its phase META like the others.
        assert {key for key in differ if "META-" not in key} == set()
        assert {key.rpartition("META-")[2] for key in differ} <= {
            "00003.jsonl.gz",
            "lists-00000.jsonl.gz",
            "lists-00001.jsonl.gz",
        }
        assert all(members <= now[key] for key, members in before.items() if key in now)


def test_an_execution_of_the_former_definition_understands_todays_answers() -> None:
    """A running execution keeps its definition and calls the new functions (AWS Step Functions Developer Guide,
    "Updating a state machine").
    """
    definitions = [json.loads(path.read_text("utf-8")) for path in (former_release() / MACHINE.name, MACHINE)]
    answers = [
        {
            (name, rule["Variable"], rule["StringEquals"]): rule["Next"]
            for name, state in definition["States"].items()
            for rule in state.get("Choices", ())
        }
        for definition in definitions
    ]
    added = answers[1].items() - answers[0].items()
    assert added == {(("ChooseDue", "$.next", "refused"), "StartRefused")}
    former_states = definitions[0]["States"]
    assert former_states[former_states["MakeDue"]["Next"]]["Type"] == "Fail", "it ends there, whatever MakeDue answers"
    waits = [{name: state for name, state in each["States"].items() if state["Type"] == "Wait"} for each in definitions]
    assert waits[1].items() <= waits[0].items()
