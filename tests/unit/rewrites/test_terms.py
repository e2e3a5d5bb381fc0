"""Options of rewrites: what requests and the operator set, and what Iceberg's action gets."""

from datetime import timedelta

import pytest

from delegation.rewrites.terms import (
    COMPACTION_OPTIONS,
    MANIFESTS_OPTIONS,
    CompactionLimits,
    CompactionTerms,
    ManifestLimits,
    ManifestTerms,
    Strategy,
)
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import InvalidOption
from polaris_common.errors import DelegationError


def test_a_silent_request_has_the_defaults_of_iceberg() -> None:
    terms = CompactionTerms.of({})
    assert terms == CompactionTerms()
    assert terms.strategy is Strategy.BIN_PACK
    assert terms.action_options() == {"min-input-files": "5", "max-concurrent-file-group-rewrites": "5"}


def test_every_option_is_read() -> None:
    terms = CompactionTerms.of(
        {
            "strategy": "sort",
            "sort-order": "day DESC, `a b` ASC NULLS LAST,id",
            "target-file-size-bytes": "1048576",
            "min-input-files": "2",
            "delete-file-threshold": "3",
            "max-concurrent-file-group-rewrites": "7",
            "filter": "day = DATE '2026-11-01'",
            "branch": "audit",
            "cold-after": "30m",
            "min-benefit": "2.5",
            "dry-run": "true",
        }
    )
    assert terms == CompactionTerms(
        strategy=Strategy.SORT,
        sort_order="day DESC, `a b` ASC NULLS LAST,id",
        target_file_size_bytes=1048576,
        min_input_files=2,
        delete_file_threshold=3,
        concurrent_rewrites=7,
        filter="day = DATE '2026-11-01'",
        branch="audit",
        cold_after=timedelta(minutes=30),
        min_benefit=2.5,
        dry_run=True,
    )
    assert terms.action_options() == {
        "target-file-size-bytes": "1048576",
        "min-input-files": "2",
        "delete-file-threshold": "3",
        "max-concurrent-file-group-rewrites": "7",
    }


def test_z_order_has_its_columns() -> None:
    terms = CompactionTerms.of({"strategy": "z-order", "z-order-columns": "x , `y z`,t"})
    assert terms.z_order_columns == ("x", "y z", "t")


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"strategy": "zorder"}, "strategy"),
        ({"strategy": "z-order"}, "z-order-columns"),
        ({"z-order-columns": "x,y"}, "z-order-columns"),
        ({"strategy": "z-order", "z-order-columns": "x"}, "z-order-columns"),
        ({"strategy": "z-order", "z-order-columns": "x,`a\tb`"}, "z-order-columns"),
        ({"sort-order": "id"}, "sort-order"),
        ({"strategy": "sort", "sort-order": "bucket(4, id)"}, "sort-order"),
        ({"strategy": "sort", "sort-order": "id DOWN"}, "sort-order"),
        ({"target-file-size-bytes": "0"}, "target-file-size-bytes"),
        ({"target-file-size-bytes": "512MB"}, "target-file-size-bytes"),
        ({"min-input-files": "0"}, "min-input-files"),
        ({"delete-file-threshold": "0"}, "delete-file-threshold"),
        ({"max-concurrent-file-group-rewrites": "1000"}, "max-concurrent-file-group-rewrites"),
        ({"filter": ""}, "filter"),
        ({"branch": "a b"}, "branch"),
        ({"cold-after": "9999999d"}, "cold-after"),
        ({"cold-after": "soon"}, "cold-after"),
        ({"min-benefit": "-1"}, "min-benefit"),
        ({"min-benefit": "nan"}, "min-benefit"),
        ({"dry-run": "yes"}, "dry-run"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(properties: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        CompactionTerms.of(properties)
    assert refused.value.name == named


def test_the_refusal_of_a_huge_size_states_the_largest_one() -> None:
    with pytest.raises(InvalidOption, match="from 1 to 999999999999999"):
        CompactionTerms.of({"target-file-size-bytes": "9" * 16})


def test_an_option_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DelegationError, match="did you mean min-input-files"):
        COMPACTION_OPTIONS.canonical({"min-imput-files": "2"})
    with pytest.raises(DelegationError, match="is not an option of this operation"):
        MANIFESTS_OPTIONS.canonical({"strategy": "sort"})
    assert COMPACTION_OPTIONS.canonical({"minInputFiles": "2"}) == {"min-input-files": "2"}


def test_cold_after_may_be_nothing() -> None:
    assert CompactionTerms.of({"cold-after": "0"}).cold_after == timedelta(0)
    assert CompactionLimits.from_properties({"delegation.compaction.cold-after": "0"}).cold_after == timedelta(0)


def test_the_operator_sets_the_defaults_and_the_most_concurrent_rewrites() -> None:
    limits = CompactionLimits.from_properties(
        {
            "delegation.compaction.cold-after": "2h",
            "delegation.compaction.min-benefit": "10",
            "delegation.compaction.max-concurrent-file-group-rewrites": "3",
            "delegation.purge.confirm": "ignored",
        }
    )
    silent = CompactionTerms.of({}, limits)
    assert (silent.cold_after, silent.min_benefit, silent.concurrent_rewrites) == (timedelta(hours=2), 10.0, 3)
    asked = {"cold-after": "1m", "min-benefit": "0", "max-concurrent-file-group-rewrites": "2"}
    own = CompactionTerms.of(asked, limits)
    assert (own.cold_after, own.min_benefit, own.concurrent_rewrites) == (timedelta(minutes=1), 0.0, 2)


def test_more_concurrent_rewrites_than_the_operator_allows_are_refused_and_lowered_once_accepted() -> None:
    limits = CompactionLimits(concurrent_rewrites=3)
    asked = {"max-concurrent-file-group-rewrites": "4"}
    with pytest.raises(DelegationError) as refused:
        CompactionTerms.of(asked, limits)
    assert refused.value.code == "PROPERTY_NOT_ALLOWED"
    assert CompactionTerms.of(asked, limits, accepted=True).concurrent_rewrites == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("cold-after", "soon"), ("min-benefit", "much"), ("max-concurrent-file-group-rewrites", "0"), ("cold-aftr", "1h")],
)
def test_a_wrong_setting_of_the_operator_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match=name):
        CompactionLimits.from_properties({f"delegation.compaction.{name}": value})


def test_manifests_are_rewritten_of_one_spec_or_of_all() -> None:
    limits = ManifestLimits.from_properties({"delegation.rewrite-manifests.min-benefit": "5"})
    assert ManifestTerms.of({}, limits) == ManifestTerms(min_benefit=5.0)
    assert ManifestTerms.of({"spec-id": "0", "min-benefit": "1"}, limits) == ManifestTerms(spec_id=0, min_benefit=1.0)
    with pytest.raises(InvalidOption):
        ManifestTerms.of({"spec-id": "-1"})
