"""Generates Python source that decodes the wanted fields of a record and skips the others, from a writer's schema.

The source consists of fixed fragments and integers, never of text from the untrusted schema. It relies on three facts.
`buf` is exactly one block, so reading past it raises IndexError. A value without a constant width contains a varint, so
every turn of a loop reads a byte. Positions only grow, so the next read, or the caller's comparison with the block's
end, detects an overrun.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from delegation.iceberg.avro.container import AvroType, Node, Schema, shown
from delegation.iceberg.errors import MalformedError, UnsupportedAvroError

MAX_DEPTH = 64  # of nested values of recursive types
INLINE_COST = 16  # the largest type, in nodes, that is inlined instead of called
INLINE_NESTING = 4  # CPython refuses more than 20 nested blocks

DecodedRow = tuple[Any, ...]
DecodeOne = Callable[[bytes, int, int], tuple[int, DecodedRow]]
Tree = dict[int, "Tree | int"]  # a field's position in its record → a wanted field's number, or the nested fields


@dataclass(frozen=True, slots=True)
class Wanted:
    """A field to decode: the field ids (and names, for files without ids) on its path, and its allowed values."""

    path: tuple[tuple[int, tuple[str, ...]], ...]
    text: bool = False
    required: bool = False
    default: int | None = None  # value of an absent or null field
    least: int | None = None
    most: int | None = None
    lenient: bool = False  # null and negative values are read as `default`
    raw: bool = False  # the encoded bytes of a value of any type

    @property
    def label(self) -> str:
        """The Iceberg name of the field, for error messages."""
        return self.path[-1][1][0]


def locate(schema: Schema, wanted: tuple[Wanted, ...]) -> Tree:
    """Return the positions of the wanted fields: by Iceberg id, else by name among fields without an id. Raises
    MalformedError if a required field is missing, two fields have one id, or a type is not Iceberg's."""
    root: Tree = {}
    for number, want in enumerate(wanted):
        steps = _steps(schema, want)
        if steps is None:
            if want.required:
                raise MalformedError(0, f"the schema has no field {want.label} ({want.path[-1][0]})")
            continue
        tree = root
        for step in steps[:-1]:
            below = tree.setdefault(step, {})
            if isinstance(below, dict):
                tree = below
        tree[steps[-1]] = number
    return root


def record_of(nodes: Sequence[Node], index: int) -> int:
    """Return the record of a nullable type, -1 if the type has no record or several."""
    node = nodes[index]
    types = [
        child
        for child in (node.children if node.kind is AvroType.UNION else [index])
        if nodes[child].kind is not AvroType.NULL
    ]
    return types[0] if len(types) == 1 and nodes[types[0]].kind is AvroType.RECORD else -1


def leaves(tree: Tree) -> list[int]:
    """Return the numbers of the wanted fields that the schema has, in file order."""
    fields: list[int] = []
    for _, below in sorted(tree.items()):
        fields += [below] if isinstance(below, int) else leaves(below)
    return fields


def _steps(schema: Schema, want: Wanted) -> list[int] | None:
    index, steps = schema.root, []
    for field_id, names in want.path:
        record = record_of(schema.nodes, index)
        if record < 0:
            node = schema.nodes[index]
            if node.kind is AvroType.UNION and node.children:
                raise UnsupportedAvroError(0, f"has a union in its schema where {want.label} is expected in a record")
            raise MalformedError(0, f"the schema has a {node.kind} where {want.label} is expected in a record")
        node = schema.nodes[record]
        fields = [at for at, each in enumerate(node.ids) if each == field_id] or [
            at for at, name in enumerate(node.names) if name in names and node.ids[at] is None
        ]
        if not fields:
            return None
        if len(fields) > 1:
            raise MalformedError(0, f"the schema has {len(fields)} fields {shown(names[0])} ({field_id})")
        steps.append(fields[0])
        index = node.children[fields[0]]
    if want.raw:
        return steps
    node = schema.nodes[index]
    # A reader's string may be written as bytes (Avro 1.11 Specification, Schema Resolution).
    usable = {AvroType.STRING, AvroType.BYTES} if want.text else {AvroType.INT, AvroType.LONG}
    branches = [schema.nodes[child].kind for child in node.children] if node.kind is AvroType.UNION else [node.kind]
    if not usable.intersection(branches) or not usable.issuperset(
        kind for kind in branches if kind is not AvroType.NULL
    ):
        raise MalformedError(0, f"the schema gives {want.label} an unusable type")
    return steps


def compile_decoder(schema: Schema, wanted: tuple[Wanted, ...], tree: Tree) -> DecodeOne:
    """Return a function (block, position, end of block) → (next position, wanted values) for one record. It raises only
    MalformedError, IndexError (the block ends inside a value) and UnicodeDecodeError."""
    source = _Source(schema, wanted).module(tree)
    scope: dict[str, Any] = {"MalformedError": MalformedError, "varint": _varint}
    exec(compile(source, "<avro decoder>", "exec"), scope)  # noqa: S102 (fixed fragments and integers only)
    decode: DecodeOne = scope["decode"]
    return decode


def _varint(buf: bytes, pos: int, value: int) -> tuple[int, int]:
    """Read the rest of a varint after its first byte `value`; return it before zig-zag, and the next position."""
    start = pos - 1
    value &= 127
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise MalformedError(start, "a varint of more than ten bytes")
    if value >> 64:
        raise MalformedError(start, "a varint of more than 64 bits")
    return value, pos


class _Source:
    """Writes the module. `_skip` and `_read` append the statements for one type at an indentation."""

    def __init__(self, schema: Schema, wanted: tuple[Wanted, ...]) -> None:
        self._nodes = schema.nodes
        self._root = schema.root
        self._wanted = wanted
        self._lines: list[str] = []
        self._needed: list[int] = []
        self._cost = self._costs()

    def module(self, tree: Tree) -> str:
        self._put(0, "def decode(buf, pos, end, depth=0):")
        self._record(1, self._root, tree)
        present = leaves(tree)
        values = "".join(
            f"v{number}, " if number in present else f"{want.default!r}, " for number, want in enumerate(self._wanted)
        )
        self._put(1, f"return pos, ({values})")
        written = 0
        while written < len(self._needed):
            index = self._needed[written]
            written += 1
            self._put(0, f"def skip{index}(buf, pos, depth):")
            self._refuse(1, f"depth > {MAX_DEPTH}", "values are nested too deep")
            self._skip(1, index, function=True)
            self._put(1, "return pos")
        return "\n".join(self._lines) + "\n"

    def _costs(self) -> list[int]:
        costs: list[int] = []
        for index, node in enumerate(self._nodes):
            below = sum(costs[child] if child < index else INLINE_COST for child in node.children)
            costs.append(min(INLINE_COST + 1, 1 + below))
        return costs

    def _put(self, indent: int, line: str) -> None:
        self._lines.append(" " * indent + line)

    def _refuse(self, at: int, condition: str, reason: str) -> None:
        """Write a statement that raises MalformedError if the condition holds."""
        self._put(at, f"if {condition}:")
        self._put(at + 1, f"raise MalformedError(pos, {reason!r})")

    def _record(self, at: int, index: int, tree: Tree) -> None:
        node = self._nodes[index]
        if node.kind is AvroType.UNION:
            # One branch is the record with the wanted fields. The others read as null.
            record = record_of(self._nodes, index)
            self._varint(at, "b")
            self._refuse(
                at, f"b != {2 * node.children.index(record)}", "a record is null, or no such branch of a union"
            )
            self._record(at, record, tree)
            return
        for position, child in enumerate(node.children):
            below = tree.get(position)
            if below is None:
                self._skip(at, child)
            elif isinstance(below, int) and self._wanted[below].raw:
                self._put(at, f"r{below} = pos")
                self._skip(at, child)
                self._put(at, f"v{below} = buf[r{below}:pos]")
            elif isinstance(below, int):
                self._read(at, self._nodes[child], below)
            else:
                self._record(at, child, below)

    # reading

    def _read(self, at: int, node: Node, number: int) -> None:
        want = self._wanted[number]
        if node.kind is not AvroType.UNION:
            self._value(at, node, number)
            return
        self._varint(at, "b")
        for branch, child in enumerate(node.children):
            self._put(at, f"{'if' if branch == 0 else 'elif'} b == {branch * 2}:")
            if self._nodes[child].kind is not AvroType.NULL:
                self._value(at + 1, self._nodes[child], number)
            elif want.required and not want.lenient:
                self._put(at + 1, f"raise MalformedError(pos, {f'{want.label} is null'!r})")
            else:
                self._put(at + 1, f"v{number} = {want.default!r}")
        self._bad_branch(at, empty=not node.children)

    def _value(self, at: int, node: Node, number: int) -> None:
        want = self._wanted[number]
        if node.kind in (AvroType.STRING, AvroType.BYTES):
            self._varint(at, "n")
            self._put(at, "stop = pos + (n >> 1)")
            self._refuse(at, "n & 1 or stop > end", f"the length of {want.label}")
            if want.required:
                self._refuse(at, "stop == pos", f"{want.label} is empty")
            self._put(at, f"v{number} = str(buf[pos:stop], 'utf-8')")
            self._put(at, "pos = stop")
            return
        self._varint(at, "n")
        self._put(at, f"v{number} = (n >> 1) ^ -(n & 1)")
        if want.lenient:
            self._put(at, f"if v{number} < 0:")
            self._put(at + 1, f"v{number} = {want.default!r}")
        elif want.least is not None or want.most is not None:
            low = "" if want.least is None else f"{want.least} <= "
            high = "" if want.most is None else f" <= {want.most}"
            self._put(at, f"if not {low}v{number}{high}:")
            self._put(at + 1, f"raise MalformedError(pos, f'{want.label} is {{v{number}}}')")

    def _varint(self, at: int, name: str) -> None:
        """Write the reading of a varint into a local variable, before zig-zag decoding."""
        self._put(at, f"{name} = buf[pos]")
        self._put(at, "pos += 1")
        self._put(at, f"if {name} > 127:")
        self._put(at + 1, f"{name}, pos = varint(buf, pos, {name})")

    def _bad_branch(self, at: int, *, empty: bool) -> None:
        if not empty:
            self._put(at, "else:")
        self._put(at if empty else at + 1, "raise MalformedError(pos, 'no such branch of a union')")

    # skipping

    def _skip(self, at: int, index: int, nesting: int = 0, *, function: bool = False) -> None:
        node = self._nodes[index]
        if node.width is not None:
            self._constant(at, node)
        elif not function and (node.recursive or self._cost[index] > INLINE_COST or nesting > INLINE_NESTING):
            if index not in self._needed:
                self._needed.append(index)
            self._put(at, f"pos = skip{index}(buf, pos, depth + 1)")
        elif node.kind in (AvroType.INT, AvroType.LONG):
            self._skip_varint(at, 5 if node.kind is AvroType.INT else 10)
        elif node.kind is AvroType.ENUM:
            self._varint(at, "n")
            self._refuse(at, f"n & 1 or n >= {node.size * 2}", "no such symbol of an enum")
        elif node.kind in (AvroType.STRING, AvroType.BYTES):
            self._skip_text(at)
        elif node.kind is AvroType.UNION:
            self._varint(at, "n")
            for branch, child in enumerate(node.children):
                self._put(at, f"{'if' if branch == 0 else 'elif'} n == {branch * 2}:")
                self._put(at + 1, "pass")
                self._skip(at + 1, child, nesting + 1)
            self._bad_branch(at, empty=not node.children)
        elif node.kind is AvroType.RECORD:
            for child in node.children:
                self._skip(at, child, nesting)
        else:
            self._blocks(at, node, nesting)

    def _constant(self, at: int, node: Node) -> None:
        if node.kind is AvroType.BOOLEAN:
            self._refuse(at, "buf[pos] > 1", "a boolean that is neither 0 nor 1")
        if node.width:
            self._put(at, f"pos += {node.width}")

    def _skip_varint(self, at: int, most: int) -> None:
        self._put(at, "if buf[pos] > 127:")
        self._put(at + 1, "start = pos")
        self._put(at + 1, "while buf[pos] > 127:")
        self._put(at + 2, "pos += 1")
        self._put(at + 1, f"if pos - start >= {most}:")
        self._put(at + 2, f"raise MalformedError(start, 'a varint of more than {most} bytes')")
        self._put(at, "pos += 1")

    def _skip_text(self, at: int) -> None:
        self._varint(at, "n")
        self._refuse(at, "n & 1", "a negative length")
        self._put(at, "pos += n >> 1")

    def _blocks(self, at: int, node: Node, nesting: int) -> None:
        """Skip an array or map. Its blocks are a count and items; a negative count is followed by the size in bytes."""
        count, stop = f"c{nesting}", f"s{nesting}"
        item = self._nodes[node.children[0]]
        self._put(at, "while True:")
        self._varint(at + 1, count)
        self._put(at + 1, f"if {count} == 0:")
        self._put(at + 2, "break")
        self._put(at + 1, f"{stop} = -1")
        self._put(at + 1, f"if {count} & 1:")
        self._put(at + 2, f"{count} += 1")
        self._varint(at + 2, "n")
        self._refuse(at + 2, "n & 1", "a negative length")
        self._put(at + 2, f"{stop} = pos + (n >> 1)")
        if node.kind is AvroType.ARRAY and item.width is not None:
            self._put(at + 1, f"pos += ({count} >> 1) * {item.width}")
        else:
            self._put(at + 1, f"for _ in range({count} >> 1):")
            if node.kind is AvroType.MAP:
                self._skip_text(at + 2)
            self._skip(at + 2, node.children[0], nesting + 1)
        self._refuse(at + 1, f"{stop} >= 0 and pos != {stop}", "a block of an array or map differs from its size")
