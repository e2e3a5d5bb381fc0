import itertools
import json

import pytest

from delegation.cli.tasks.direct import DirectTasks, collect, versions_of
from delegation.cli.tasks.filters import TaskFilter
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Advance, Create
from delegation.wiring.types import TYPES
from tests.kit.tasks.builders import (
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    in_status,
    retried,
    started,
    submitted,
    succeeded,
)
from tests.unit.cli.conftest import lines
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record
from tests.unit.wiring.test_plugins import EXAMPLES

ENDED = {Status.SUCCESS, Status.FAILURE}


def put(store, *tasks):
    for task in tasks:
        store.apply(Create(task))


def a_life(store, task_id=TASK_ID):
    life = [submitted(task_id)]
    life.append(acquired(life[-1], now=NOW + SECOND))
    life.append(started(life[-1], NOW + 3 * SECOND))
    life.append(succeeded(life[-1], NOW + MINUTE))
    store.apply(Create(life[0]))
    for before, after in itertools.pairwise(life):
        store.apply(Advance(before, after))


@pytest.mark.parametrize("columns", ["80", "160"])
def test_list_says_which_table_is_not_whole(run, terminal, service, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    failed = record(status="FAILURE", error_code="DELETE_INCOMPLETE", partly_deleted=True)
    service.answer("GET", TASKS, json_answer(200, {"tasks": [failed], "unreadable": [], "next_page_token": None}))
    assert "DELETE_INCOMPLETE, table incomplete" in " ".join(run("tasks", "list").stdout.split())


def test_list_marks_an_unknown_behavior(run, terminal, store):
    put(store, submitted("t-1", task_type="COMPACTION"), submitted("t-2"))
    text = run("tasks", "list", "--direct").stdout
    assert "COMPACTION (unknown behavior)" in text
    assert "TABLE_PURGE (unknown behavior)" not in text
    (document,) = lines(run("tasks", "list", "--direct", "--json").stdout)
    assert {task["task_type"]: task["known_behavior"] for task in document["tasks"]} == {
        "COMPACTION": False,
        "TABLE_PURGE": True,
    }


def test_pages_of_a_filtered_list_lose_nothing(store):
    wanted = {Status.SUBMITTED}
    for n in range(250):
        put(store, submitted(f"t-{n:03}") if n % 7 == 0 else in_status(Status.FAILURE, task_id=f"t-{n:03}"))
    found, cursor = [], None
    while True:
        page = collect(store, TaskFilter(statuses=frozenset(wanted)), cursor=cursor, limit=10)
        found += [view.task_id for view in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [f"t-{n:03}" for n in range(0, 250, 7)]
    assert page.known == frozenset(TYPES)


def test_the_list_from_the_table_knows_the_behaviors_that_are_loaded(store):
    """They were marked as those of a newer release."""
    put(store, submitted("t-1", task_type="SHOUT"), submitted("t-2", task_type="NEWER"))
    direct = DirectTasks(store, lambda: "operator", (EXAMPLES,))
    page = direct.found(TaskFilter(), limit=10)
    assert [page.is_known(task) for task in sorted(page.tasks, key=lambda one: one.task_id)] == [True, False]


def test_unreadable_records_are_listed_and_hide_no_others(run, terminal, store):
    put(store, *(submitted(f"t-{n}") for n in range(5)))
    for n in (0, 3):
        store.make_unreadable(f"t-{n}")
    text = run("tasks", "list", "--direct").stdout
    assert all(f"t-{n}" in text for n in range(5))
    assert text.count("unreadable") == 2
    (document,) = lines(run("tasks", "list", "--direct", "--json").stdout)
    assert [task["task_id"] for task in document["tasks"]] == ["t-1", "t-2", "t-4"]
    assert [one["task_id"] for one in document["unreadable"]] == ["t-0", "t-3"]
    assert "format" in document["unreadable"][0]["reason"]


def test_pages_list_each_unreadable_record_once(store):
    put(store, *(submitted(f"t-{n}") for n in range(9)))
    for n in (0, 4, 5, 8):
        store.make_unreadable(f"t-{n}")
    for limit in (1, 2, 3, 4, 9):
        seen, cursor = [], None
        while True:
            page = collect(store, TaskFilter(), cursor=cursor, limit=limit)
            seen += sorted([*(view.task_id for view in page.tasks), *(one.task_id for one in page.unreadable)])
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == [f"t-{n}" for n in range(9)]


def test_empty_table_lists_no_tasks(run, terminal, store):
    assert run("tasks", "list", "--direct").stdout == "No tasks.\n"
    assert lines(run("tasks", "list", "--direct", "--json").stdout) == [
        {"tasks": [], "unreadable": [], "cursor": None, "more": False, "since": None}
    ]


def test_history_shows_every_version_and_how_long_it_lasted(run, store):
    a_life(store)
    text = run("tasks", "history", TASK_ID, "--direct").stdout
    rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]
    versions = [(1, "SUBMITTED"), (2, "ACQUIRING_RESOURCES"), (3, "RUNNING"), (4, "SUCCESS")]
    assert [(int(row[0]), row[1]) for row in rows] == versions
    (document,) = lines(run("tasks", "history", TASK_ID, "--direct", "--json").stdout)
    assert [(row["version"], row["status"]) for row in document["versions"]] == versions
    assert document["versions"][0]["task_payload"] == '{"table": "orders"}'
    assert "57.0 s" in text
    assert "deleted 3 files" in text


def test_history_longer_than_a_page_is_complete(store):
    task = submitted("t-long")
    put(store, task)
    for n in range(130):
        after = acquired(task) if n % 2 == 0 else retried(task, at=NOW)
        task = store.apply(Advance(task, after))
    assert [view.version for view in versions_of(store, "t-long")] == list(range(1, 132))


def test_unknown_task_fails_with_a_next_step(run, store):
    result = run("tasks", "history", "nope", "--direct")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "delegation tasks list" in result.stderr


def test_show_prints_every_field_that_is_set_and_the_id_by_which_the_logs_are_searched(run, service):
    payload = '{"common_payload": {"polaris_correlation_id": "query-42"}}'
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(task_payload=payload)))
    text = " ".join(run("tasks", "show", TASK_ID).stdout.split())
    assert all(word in text for word in ("RUNNING", "added_by_a_later_release", "correlation_id query-42"))
    (document,) = lines(run("tasks", "show", TASK_ID, "--json").stdout)
    assert (document["task_payload"], document["added_by_a_later_release"]) == (payload, {"x": 1})


def test_watch_prints_a_line_per_change_and_ends_with_success(run, service):
    done = record(version=4, revision=10, status="SUCCESS", files_deleted=400)
    service.answer("GET", f"{TASKS}/{TASK_ID}", *(json_answer(200, step) for step in (record(), record(), done)))
    result = run("tasks", "watch", TASK_ID, "--json", "--interval", "5")
    assert result.exit_code == 0
    assert [(view["version"], view["status"]) for view in lines(result.stdout)] == [(3, "RUNNING"), (4, "SUCCESS")]
    assert service.slept == [5.0, 5.0]


def test_watch_ends_at_its_timeout_with_an_error(run, service):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record()))
    result = run("tasks", "watch", TASK_ID, "--timeout", "0", "--json")
    assert result.exit_code == 1
    assert [view["status"] for view in lines(result.stdout)] == ["RUNNING"]
    assert json.loads(result.stderr)["error_code"] == "TASK_NOT_DONE"


def test_watch_without_a_terminal_repeats_no_line(run, service):
    steps = [record(), record(revision=10), record(revision=11), record(version=4, revision=12, status="SUCCESS")]
    service.answer("GET", f"{TASKS}/{TASK_ID}", *(json_answer(200, step) for step in steps))
    text = run("tasks", "watch", TASK_ID).stdout
    assert [line.split()[0] for line in text.splitlines()] == ["RUNNING", "SUCCESS"]


def test_watch_of_a_failed_task_exits_with_1_and_the_reason(run, service):
    failed = record(status="FAILURE", error_code="STORAGE_DENIED", result_summary="access denied")
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, failed))
    result = run("tasks", "watch", TASK_ID)
    assert result.exit_code == 1
    assert "FAILURE" in result.stdout
    assert "STORAGE_DENIED: access denied" in result.stderr
    assert f"delegation tasks history {TASK_ID}" in result.stderr


def test_collect_of_exactly_as_many_as_the_limit_has_no_cursor(store):
    put(store, *(submitted(f"t-{n}") for n in range(3)))
    assert collect(store, TaskFilter(), cursor=None, limit=3).cursor is None
    assert collect(store, TaskFilter(), cursor=None, limit=2).cursor == "t-1"


def test_what_is_left_of_a_task_type_that_this_release_lacks_is_counted_and_listed(run, store):
    put(store, *(in_status(status, task_id=f"t-{status}", task_type="acme.old") for status in Status))
    (document,) = lines(run("tasks", "types", "--json").stdout)
    assert document["types"]["acme.old"] == dict.fromkeys(Status, 1)
    (listed,) = lines(run("tasks", "list", "--direct", "--type", "acme.old", "--open", "--json").stdout)
    assert {task["task_id"] for task in listed["tasks"]} == {f"t-{status}" for status in Status if status not in ENDED}


PLAN = [{"id": f"{TASK_ID}/1/aaaaaaaaaaaa", "sha256": "0" * 64}]


@pytest.mark.parametrize(("begun", "kept"), [(NOW, PLAN), (None, None)], ids=["begun to delete", "only planned"])
def test_only_a_purge_that_began_to_delete_keeps_its_plan(run, store, begun, kept):
    running = in_status(Status.RUNNING, task_id=TASK_ID)
    put(store, failed(running.evolve(details={"plan_segments": PLAN}, effects_began_ts=begun)))
    assert run("tasks", "retry", "--direct", TASK_ID).exit_code == 0
    after = store.get(TASK_ID)
    assert (after.status, after.effects_began_ts, after.details.get("plan_segments")) == (Status.SUBMITTED, begun, kept)


@pytest.mark.parametrize("task_type", ["STORE_MAINTENANCE", "COMPACTION"])
def test_a_task_of_any_type_is_cancelled_and_retried_with_its_details(run, store, task_type):
    put(store, in_status(Status.SUBMITTED, task_id=TASK_ID, task_type=task_type, tier="gold"))
    for word, status in (("cancel", Status.FAILURE), ("retry", Status.SUBMITTED)):
        assert run("tasks", word, "--direct", TASK_ID).exit_code == 0
        assert (store.get(TASK_ID).status, store.get(TASK_ID).details["tier"]) == (status, "gold")
