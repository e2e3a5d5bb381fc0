"""Stores that each break one promise; the contract suite has to catch every one."""

from dataclasses import dataclass
from typing import Any

from delegation.tasks.contract import admission, reads, writes
from delegation.tasks.contract.support import Check
from delegation.tasks.stores.base import TaskStore
from tests.contract.tasks.broken import admission as broken_admission
from tests.contract.tasks.broken import children as broken_children
from tests.contract.tasks.broken import lists as broken_lists
from tests.contract.tasks.broken import reads as broken_reads
from tests.contract.tasks.broken import writes as broken_writes


@dataclass(frozen=True)
class Broken:
    """A broken store and the promises that it breaks; the suite must notice each of them."""

    store: type[Any]
    breaks: tuple[Check, ...]

    def build(self) -> TaskStore:
        built: TaskStore = self.store()
        return built


BROKEN: tuple[Broken, ...] = (
    Broken(
        broken_writes.UnconditionalPut,
        (
            writes.advance_from_a_former_version_is_stale,
            writes.advance_from_a_version_that_does_not_exist_yet_is_stale,
            writes.advance_over_a_touched_head_is_a_revision_conflict,
            writes.advance_of_an_unknown_task_is_stale,
            writes.revise_of_a_touched_head_is_a_revision_conflict,
            writes.revise_of_a_former_version_is_stale,
            writes.revise_of_an_unknown_task_is_stale,
            admission.one_winner_per_version,
            admission.heartbeats_and_a_finish_do_not_overwrite_each_other,
        ),
    ),
    Broken(broken_writes.CreateWithoutRow, (writes.create_stores_head_and_first_version,)),
    Broken(broken_writes.OnlyTheLastRow, (writes.advance_over_several_versions_keeps_each_of_them,)),
    Broken(broken_writes.NoRow, (writes.advance_moves_the_head_and_keeps_every_row,)),
    Broken(broken_writes.RowBeforeTheCondition, (writes.advance_over_a_touched_head_is_a_revision_conflict,)),
    Broken(
        broken_writes.ForgottenRevision,
        (
            writes.advance_over_a_touched_head_is_a_revision_conflict,
            writes.revise_of_a_touched_head_is_a_revision_conflict,
        ),
    ),
    Broken(broken_writes.ForgottenRevisionOfHeadWrites, (writes.revise_of_a_touched_head_is_a_revision_conflict,)),
    Broken(broken_writes.ForgottenVersion, (writes.advance_from_a_former_version_is_stale,)),
    Broken(
        broken_writes.ForgottenNonce,
        (writes.advance_repeated_with_its_nonce_succeeds_again, writes.revise_repeated_with_its_nonce_succeeds_again),
    ),
    Broken(broken_writes.NonceOfTheHeadOnly, (writes.advance_is_recognized_below_a_later_head,)),
    Broken(
        broken_writes.OverwritingCreate,
        (
            writes.create_is_refused_with_the_task_that_exists,
            writes.create_is_refused_after_the_task_changed,
            admission.one_creator_per_task,
        ),
    ),
    Broken(broken_writes.ForgetfulCreate, (writes.create_repeated_with_its_nonce_succeeds_again,)),
    Broken(
        broken_writes.SilentCreate, (writes.create_is_refused_with_the_task_that_exists, admission.one_creator_per_task)
    ),
    Broken(broken_writes.WinnerNotShown, (writes.advance_from_a_former_version_is_stale,)),
    Broken(broken_writes.RevisedRow, (writes.revise_rewrites_the_head_and_keeps_the_rows,)),
    Broken(broken_writes.ExpectsNothing, (writes.expect_refuses_another_version,)),
    Broken(broken_writes.ExpectsTheRevision, (writes.expect_checks_the_version_not_the_revision,)),
    Broken(broken_writes.ExpectWrites, (writes.expect_checks_the_version_not_the_revision,)),
    Broken(broken_reads.HistoryWithoutStart, (reads.history_pages_in_order_while_the_task_runs,)),
    Broken(broken_reads.HistoryWithoutLimit, (reads.history_pages_in_order_while_the_task_runs,)),
    Broken(broken_reads.HistoryBackwards, (reads.history_pages_in_order_while_the_task_runs,)),
    Broken(broken_reads.HeadAsAVersion, (reads.a_version_is_a_row_never_the_head,)),
    Broken(
        broken_reads.TerminalStaysDue, (reads.a_terminal_task_leaves_the_index, reads.due_follows_the_head_not_the_rows)
    ),
    Broken(
        broken_reads.DueUnordered,
        (reads.due_lists_what_is_due_oldest_first, reads.due_returns_at_most_the_limit_and_the_oldest_of_all_shards),
    ),
    Broken(broken_reads.DueTooEarly, (reads.a_rewritten_head_moves_within_the_index,)),
    Broken(broken_reads.DueTooLate, (reads.due_lists_what_is_due_oldest_first,)),
    Broken(broken_reads.DueWithoutLimit, (reads.due_returns_at_most_the_limit_and_the_oldest_of_all_shards,)),
    Broken(broken_reads.DueOfAllShards, (reads.due_of_some_shards_is_the_oldest_of_these,)),
    Broken(broken_reads.HeadsWithoutCursor, (reads.heads_pages_over_every_task_once,)),
    Broken(broken_reads.HeadsLoseThePageEnd, (reads.heads_pages_over_every_task_once,)),
    Broken(broken_reads.HeadsWithADanglingCursor, (reads.heads_of_an_exact_page_have_no_cursor,)),
    Broken(broken_reads.HeadsRaiseOnAnUnreadableOne, (reads.heads_include_what_they_cannot_read,)),
    Broken(broken_reads.HeadsHideUnreadableOnes, (reads.heads_include_what_they_cannot_read,)),
    Broken(broken_reads.HeadsStopAtAnUnreadableOne, (reads.heads_include_what_they_cannot_read,)),
    Broken(broken_writes.DropsUnknownDetails, (reads.unknown_attributes_survive_every_rewrite,)),
    Broken(broken_reads.RemovesTheHeadOnly, (writes.remove_deletes_rows_and_head_of_that_task_only,)),
    Broken(
        broken_reads.RemovesUnconditionally,
        (writes.remove_of_a_task_that_changed_is_refused, writes.remove_of_a_live_task_is_refused),
    ),
    Broken(broken_reads.RemovesAnyRevision, (writes.remove_of_a_task_that_was_touched_is_refused,)),
    Broken(broken_reads.ForgetsTheLastRowToo, (writes.forget_leaves_the_row_of_the_head,)),
    Broken(broken_reads.LooksForTheFirstRow, (writes.a_task_is_there_although_its_first_row_was_forgotten,)),
    Broken(broken_reads.ForgetsNothing, (writes.forget_deletes_old_rows_of_that_task_only,)),
    Broken(broken_reads.QueriesAnEmptyRange, (writes.forget_of_a_first_version_deletes_nothing,)),
    Broken(
        broken_children.ForgetsTheParent,
        (admission.adopt_records_child_and_parent_without_a_change_of_the_head, admission.a_child_outlives_its_records),
    ),
    Broken(broken_children.AdoptsTheFirstOnly, (admission.adopt_records_several_children_or_none,)),
    Broken(broken_children.CreatesSome, (admission.create_all_stores_all_or_none,)),
    Broken(broken_children.ReadsFormerVersions, (admission.get_many_returns_the_heads_that_exist,)),
    Broken(broken_children.AdoptsWithoutTheHead, (admission.adopt_rewrites_the_head_like_revise,)),
    Broken(broken_children.FirstAdoptionWins, (admission.adopt_by_a_later_attempt_replaces_the_attempt,)),
    Broken(
        broken_children.AdoptsBeforeTheCondition, (admission.adopt_of_a_former_version_is_refused_and_records_nothing,)
    ),
    Broken(broken_children.AdoptsAnyRevision, (admission.adopt_checks_the_revision_where_it_rewrites_the_head,)),
    Broken(broken_children.ShowsChildrenAsHeads, (admission.children_are_listed_by_id_and_seen_by_no_other_read,)),
    Broken(broken_children.DisownsLaterAttemptsToo, (admission.disown_deletes_what_no_later_attempt_adopted,)),
    Broken(broken_children.RemovesTasksWithoutTheirChildren, (admission.remove_deletes_the_records_of_children,)),
    Broken(broken_children.RemovesTheParentsOfAChild, (admission.a_child_outlives_its_records,)),
    Broken(broken_writes.SharedHeads, (writes.tasks_do_not_affect_each_other,)),
    Broken(
        broken_writes.ChecksThenActs,
        (admission.one_winner_per_version, admission.one_creator_per_task, admission.no_acknowledged_revision_is_lost),
    ),
    Broken(broken_admission.QueuedIgnoresLanes, (admission.queued_has_the_longest_waiting_of_each_lane,)),
    Broken(broken_admission.SkipsALaneBetweenPages, (admission.lanes_are_read_from_one_to_the_next,)),
    Broken(broken_writes.NumbersWithinDetails, (writes.whatever_is_json_comes_back_in_details_and_results,)),
    Broken(broken_admission.QueuedTooEarly, (admission.queued_has_the_longest_waiting_of_each_lane,)),
    Broken(
        broken_admission.EndedStaysRunning,
        (admission.a_task_is_queued_then_running_then_neither, admission.an_ended_attempt_frees_its_place_in_one_write),
    ),
    Broken(broken_admission.CountsEveryHolder, (admission.a_task_without_a_lane_is_not_counted,)),
    Broken(
        broken_admission.RegisterWithoutCondition,
        (admission.the_register_moves_from_its_revision_only, admission.one_of_many_writers_moves_the_register),
    ),
    Broken(broken_lists.ListsTheOldestFirst, (reads.the_newest_received_is_first_however_large_the_pages,)),
    Broken(broken_lists.ListsStopAtAnEmptyDay, (reads.the_newest_received_is_first_however_large_the_pages,)),
    Broken(broken_lists.ListsSkipTasksOfOneMoment, (reads.tasks_of_one_moment_have_a_fixed_order,)),
    Broken(broken_lists.ListsForgetTheirTime, (reads.a_list_begins_at_its_time,)),
    Broken(broken_lists.ListsIgnoreTheCorrelation, (reads.a_label_finds_its_tasks_in_the_same_order,)),
    Broken(broken_lists.ListsEveryTarget, (reads.a_label_finds_its_tasks_in_the_same_order,)),
    Broken(broken_lists.ListsVersions, (reads.a_list_has_the_present_heads_once,)),
    Broken(broken_lists.ListsKeepTheFirstPlace, (reads.a_task_submitted_again_moves_to_the_front,)),
    Broken(broken_lists.ListsLookForTheirPosition, (reads.a_page_follows_a_position_whose_task_is_gone,)),
    Broken(broken_lists.ListsHideUnreadableOnes, (reads.a_list_includes_what_it_cannot_read,)),
    Broken(broken_lists.ListsRaiseOnAnUnreadableOne, (reads.a_list_includes_what_it_cannot_read,)),
)
