"""An index equals a sorted dict after any sequence of changes, commits, spills and reloads."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from polaris_persistence.index.format import decode_head
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef
from tests.effort import examples
from tests.persistence.index.index_fixtures import Catalog, key_elements, refs

policies = st.builds(
    lambda lowest, more, stripe: IndexPolicy(min_embedded=lowest, max_embedded=lowest + more, stripe=stripe),
    st.sampled_from([0, 20, 200, 2_000]),
    st.sampled_from([0, 100, 4_000]),
    st.sampled_from([1, 60, 300, 3_000]),
)
Elements = tuple[str, ...]


def in_order(elements: Elements) -> tuple[bytes, ...]:
    return tuple(element.encode() for element in elements)


class IndexMachine(RuleBasedStateMachine):
    """`model` is the expected working copy, `committed` the expected last commit."""

    known = Bundle("known")

    @initialize(policy=policies)
    def start(self, policy: IndexPolicy) -> None:
        self.catalog = Catalog(policy)
        self.index: Index = self.catalog.load()
        self.model: dict[Elements, ObjectRef] = {}
        self.committed: dict[Elements, ObjectRef] = {}

    @rule(target=known, elements=key_elements, ref=refs)
    def put(self, elements: Elements, ref: ObjectRef) -> Elements:
        self.index.put(IndexKey.of(*elements), ref)
        self.model[elements] = ref
        return elements

    @rule(elements=known, ref=refs)
    def put_again(self, elements: Elements, ref: ObjectRef) -> None:
        self.index.put(IndexKey.of(*elements), ref)
        self.model[elements] = ref

    @rule(target=known, stem=key_elements, count=st.integers(1, 40), first=st.integers(0, 2**62))
    def put_many(self, stem: Elements, count: int, first: int) -> object:
        many = [(*stem, f"table_{number:03}") for number in range(count)]
        for number, elements in enumerate(many):
            self.put(elements, ObjectRef("table", first + number))
        return multiple(*many)

    @rule(elements=consumes(known))
    def remove(self, elements: Elements) -> None:
        assert self.index.remove(IndexKey.of(*elements)) == (elements in self.model)
        self.model.pop(elements, None)

    @rule(elements=key_elements)
    def remove_any(self, elements: Elements) -> None:
        self.remove(elements)

    @rule(elements=known)
    def remove_and_put_back(self, elements: Elements) -> None:
        ref = self.model.get(elements)
        if ref is not None:
            assert self.index.remove(IndexKey.of(*elements))
            assert self.index.get(IndexKey.of(*elements)) is None
            self.index.put(IndexKey.of(*elements), ref)

    @rule(elements=st.one_of(known, key_elements))
    def get(self, elements: Elements) -> None:
        assert self.index.get(IndexKey.of(*elements)) == self.model.get(elements)

    @rule(wanted=st.lists(st.one_of(known, key_elements), max_size=5))
    def get_many(self, wanted: list[Elements]) -> None:
        found = self.index.get_many(IndexKey.of(*elements) for elements in wanted)
        assert found == {IndexKey.of(*elements): self.model.get(elements) for elements in wanted}

    @rule(
        start=st.none() | known | key_elements,
        end=st.none() | known | key_elements,
        prefix=st.none() | known.map(lambda elements: elements[:1]) | key_elements,
    )
    def items(self, start: Elements | None, end: Elements | None, prefix: Elements | None) -> None:
        expected = [
            (elements, self.model[elements])
            for elements in sorted(self.model, key=in_order)
            if (start is None or in_order(elements) >= in_order(start))
            and (end is None or in_order(elements) < in_order(end))
            and (prefix is None or elements[: len(prefix)] == prefix)
        ]
        bounds = [None if one is None else IndexKey.of(*one) for one in (start, end, prefix)]
        assert [(key.elements(), ref) for key, ref in self.index.items(*bounds)] == expected
        assert self.index.keys(*bounds) == [IndexKey.of(*elements) for elements, _ in expected]

    @rule()
    def commit(self) -> None:
        changed = self.index.changed
        written = len(self.catalog.stripes.written)
        before = self.catalog.embedded
        self.catalog.embedded = self.index.finish(self.catalog.policy, self.catalog.stripes.write).embedded
        if not changed:
            assert (self.catalog.embedded, len(self.catalog.stripes.written)) == (before, written)
            assert self.model == self.committed
        self.committed = dict(self.model)
        self.index = self.catalog.load()

    @rule()
    def fail_to_commit(self) -> None:
        """Another attempt starts from the head again; the stripes of the lost one are unused."""
        self.index.finish(self.catalog.policy, self.catalog.stripes.write)
        self.model = dict(self.committed)
        self.index = self.catalog.load()

    @precondition(lambda self: self.catalog.embedded)
    @rule()
    def stripes_are_in_order_and_hold_only_what_is_theirs(self) -> None:
        stripes, embedded = decode_head(self.catalog.embedded)
        if not stripes:
            assert None not in [embedded.ref(number) for number in range(len(embedded.keys))]
        for number, loaded in enumerate(self.catalog.stripes.fetch(stripe.ref for stripe in stripes)):
            assert loaded is not None
            entries = loaded.value.entries()
            assert len(entries.keys) == stripes[number].entries > 0
            assert entries.keys[0] >= stripes[number].separator
            assert number + 1 == len(stripes) or entries.keys[-1] < stripes[number + 1].separator

    @invariant()
    def reads_as_the_model(self) -> None:
        assert [(key.elements(), ref) for key, ref in self.index.items()] == [
            (elements, self.model[elements]) for elements in sorted(self.model, key=in_order)
        ]


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
