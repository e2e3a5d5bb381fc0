"""A regular expression that matches a whole record, learned from the file's records, for speed.

A manifest's records have similar shapes: the same columns, and paths and bounds of few lengths. The lengths, counts and
union branches seen become alternatives, which match several times as fast as the generated decoder. Each alternative
begins with its length, count or branch as a literal, and none is a prefix of another. So at most one reading matches,
and it is Avro's. The exact decoder reads records that do not match, and a sample of them is learned.

Learning takes tens of milliseconds, as long as the exact decoder takes for a few thousand records. So it starts only
after that many: a Lambda that reads a small table in a fresh process learns nothing (tests/bench/bench_cold_reader.py).
Repetitions are possessive or of fixed count, and alternatives exclude each other, so matching takes linear time.
"""

import re
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

from delegation.iceberg.avro.container import AvroType, Node, Schema, read_long
from delegation.iceberg.avro.decoder import DecodedRow, Tree, Wanted, leaves, record_of

COLD_RECORDS = 4096  # records of a process's first files from which nothing is learned, to save time
FIRST_PATIENCE = 128  # records that do not match before an expression is compiled; doubles each time
LAST_PATIENCE = 8192  # its maximum, which bounds the cost of compiling if records have no common shape
SAMPLES = 256  # records learned per expression
MAX_RECORD_BYTES = 1 << 14  # of a record that is learned
MAX_LENGTH = 8191  # of text, so that its length has at most two bytes
MAX_ALTERNATIVES = 128
MAX_ITEMS = 1000
MAX_NODE_PATTERN = 1 << 15
MAX_PATTERN = 1 << 17
MAX_TREE_DEPTH = 24

NEVER = rb"(?!)"
INT = rb"[\x80-\xff]{0,4}+[\x00-\x7f]"
LONG = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
SIMPLE = {AvroType.BOOLEAN: rb"[\x00\x01]", AvroType.INT: INT, AvroType.LONG: LONG}

Match = Callable[[bytes, int], "re.Match[bytes] | None"]
Fast = Callable[[bytes, int, int, Match, Callable[[DecodedRow], None]], tuple[int, int]]


class Shapes:
    """The shapes learned from one schema's records; shared by the threads that read such files."""

    def __init__(self, schema: Schema, wanted: tuple[Wanted, ...], tree: Tree) -> None:
        self._nodes = schema.nodes
        self._root = schema.root
        self._wanted = wanted
        self._tree = tree
        self._seen: dict[int, Counter[int]] = {}
        self._patience = FIRST_PATIENCE
        self._misses = 0
        self._cold = COLD_RECORDS
        self._lock = Lock()
        self._usable = _usable(schema, wanted, tree)
        self.match: Match | None = None
        self.fast = _fast(wanted, tree) if self._usable else None

    def missed(self, buf: bytes, start: int, stop: int) -> None:
        """Learn from a record that did not match. Compiles a new expression after enough of them."""
        if not self._usable:
            return
        if self._cold > 0:
            self._cold -= 1  # threads may lose a count, which only delays learning
            return
        with self._lock:
            learnable = stop <= min(len(buf), start + MAX_RECORD_BYTES)
            if learnable and self._misses % max(1, self._patience // SAMPLES) == 0:
                self._observe(self._root, buf, start)
            self._misses += 1
            if self._misses >= self._patience:
                self._misses = 0
                self._patience = min(LAST_PATIENCE, self._patience * 2)
                self._compile()

    # learning from records that the exact decoder accepted

    def _count(self, site: int, value: int) -> None:
        counter = self._seen.setdefault(site, Counter())
        if value not in counter and len(counter) >= MAX_ALTERNATIVES:
            counter.clear()  # another table's records: forget the earlier lengths
        counter[value] += 1

    def _observe(self, index: int, buf: bytes, pos: int) -> int:
        node = self._nodes[index]
        if node.width is not None:
            return pos + node.width
        if node.kind is AvroType.RECORD:
            for child in node.children:
                pos = self._observe(child, buf, pos)
            return pos
        if node.kind in (AvroType.INT, AvroType.LONG):
            while buf[pos] > 127:
                pos += 1
            return pos + 1
        value, pos = read_long(buf, pos)
        if node.kind in (AvroType.ARRAY, AvroType.MAP):
            return self._observe_items(index, buf, pos, value)
        if node.kind is AvroType.ENUM:
            return pos
        self._count(index, value)
        return self._observe(node.children[value], buf, pos) if node.kind is AvroType.UNION else pos + value

    def _observe_items(self, index: int, buf: bytes, pos: int, count: int) -> int:
        """Learn from the items after the first block's count. Values of several blocks are skipped."""
        node, first = self._nodes[index], count
        item = self._nodes[node.children[0]]
        blocks = 0
        while count:
            if count < 0:
                _, pos = read_long(buf, pos)
            if node.kind is AvroType.ARRAY and item.width is not None:  # the items may have no bytes
                pos += abs(count) * item.width
                count = 0
            for _ in range(abs(count)):
                if node.kind is AvroType.MAP:
                    length, pos = read_long(buf, pos)
                    self._count(~index, length)
                    pos += length
                pos = self._observe(node.children[0], buf, pos)
            blocks += 1
            count, pos = read_long(buf, pos)
        if first >= 0 and blocks <= 1:
            self._count(index, first)
        return pos

    # compiling

    def _compile(self) -> None:
        patterns: list[bytes] = []
        for index in range(len(self._nodes)):
            pattern = self._pattern(index, patterns)
            patterns.append(pattern if len(pattern) <= MAX_NODE_PATTERN else NEVER)
        whole = self._record(self._root, self._tree, patterns)
        self.match = re.compile(whole, re.DOTALL).match if len(whole) <= MAX_PATTERN else None

    def _pattern(self, index: int, below: list[bytes]) -> bytes:
        """Return the pattern of a skipped value. `below` has the patterns of the types before it."""
        node = self._nodes[index]
        if node.kind in SIMPLE:
            return SIMPLE[node.kind]
        if node.width is not None:
            return _any(node.width)
        if node.kind is AvroType.ENUM:
            alternatives = [_prefix(symbol) for symbol in range(min(node.size, MAX_ALTERNATIVES))]
        elif node.kind is AvroType.UNION:
            alternatives = [_prefix(branch) + below[node.children[branch]] for branch in self._values(index)]
        elif node.kind is AvroType.RECORD:
            alternatives = [b"".join(below[child] for child in node.children)]
        elif node.kind in (AvroType.STRING, AvroType.BYTES):
            return self._text(index)
        else:
            alternatives = self._items(index, node, below[node.children[0]])
        return _either(alternatives)

    def _items(self, index: int, node: Node, item: bytes) -> list[bytes]:
        width = self._nodes[node.children[0]].width
        if node.kind is AvroType.MAP:
            item = self._text(~index) + item
        alternatives = []
        for count in self._values(index):
            if count == 0 or (node.kind is AvroType.ARRAY and width == 0):
                items = b""
            elif node.kind is AvroType.ARRAY and width is not None:
                items = _any(count * width)
            else:
                items = b"(?:%b){%d}+" % (item, count)
            if count <= MAX_ITEMS:
                alternatives.append(_prefix(count) + items + (b"\\x00" if count else b""))
        while sum(map(len, alternatives)) > MAX_NODE_PATTERN // 4:
            alternatives.pop()
        return alternatives

    def _text(self, site: int, *, least: int = 0) -> bytes:
        lengths = [length for length in self._values(site) if least <= length <= MAX_LENGTH]
        return _either([_prefix(length) + _any(length) for length in lengths])

    def _values(self, site: int) -> list[int]:
        return [value for value, _ in self._seen.get(site, Counter()).most_common()]

    def _record(self, index: int, tree: Tree, patterns: list[bytes]) -> bytes:
        node = self._nodes[index]
        if node.kind is AvroType.UNION:
            record = record_of(self._nodes, index)
            return _prefix(node.children.index(record)) + self._record(record, tree, patterns)
        parts = []
        for position, child in enumerate(node.children):
            below = tree.get(position)
            if below is None:
                parts.append(patterns[child])
            elif isinstance(below, int):
                parts.append(self._captured(child, self._wanted[below], patterns))
            else:
                parts.append(self._record(child, below, patterns))
        return b"".join(parts)

    def _captured(self, index: int, want: Wanted, patterns: list[bytes]) -> bytes:
        """Return the pattern of a wanted value. It has one group, which is unset for null."""
        node = self._nodes[index]
        if node.kind is AvroType.UNION:
            branches = []
            for branch, child in enumerate(node.children):  # all branches: the group must exist
                null = self._nodes[child].kind is AvroType.NULL
                value = (NEVER if want.required else b"") if null else self._captured(child, want, patterns)
                branches.append(_prefix(branch) + value)
            return _either(branches)
        return b"(%b)" % (self._text(index, least=int(want.required)) if want.text else patterns[index])


def _usable(schema: Schema, wanted: tuple[Wanted, ...], tree: Tree) -> bool:
    """Return whether an expression is possible: no recursive or deep type, no wanted integer that may be negative, and
    no value wanted in its encoded form."""
    if any(want.raw for want in wanted):
        return False
    depths: list[int] = []
    for index, node in enumerate(schema.nodes):
        if node.recursive or any(child >= index for child in node.children):
            return False
        depths.append(1 + max((depths[child] for child in node.children), default=0))
    if depths[schema.root] > MAX_TREE_DEPTH or any(not want.text and want.least != 0 for want in wanted):
        return False
    return all(len(_values_of(schema.nodes, index)) == 1 for index in _leaves(schema.nodes, schema.root, tree))


def _values_of(nodes: tuple[Node, ...], index: int) -> list[int]:
    node = nodes[index]
    return [child for child in (node.children or [index]) if nodes[child].kind is not AvroType.NULL]


def _leaves(nodes: tuple[Node, ...], index: int, tree: Tree) -> list[int]:
    leaves, record = [], record_of(nodes, index)
    for position, below in tree.items() if record >= 0 else ():
        child = nodes[record].children[position]
        leaves += [child] if isinstance(below, int) else _leaves(nodes, child, below)
    return leaves


def _any(count: int) -> bytes:
    if count > MAX_RECORD_BYTES:
        return NEVER
    return b".{%d}" % count if count else b""


def _either(alternatives: list[bytes]) -> bytes:
    if len(alternatives) == 1:
        return alternatives[0]
    return b"(?:%b)" % b"|".join(alternatives) if alternatives else NEVER


def _prefix(value: int) -> bytes:
    """Return the pattern of a non-negative number as a zig-zag varint."""
    rest, encoded = value << 1, b""
    while rest > 127:
        encoded += b"\\x%02x" % (rest & 127 | 128)
        rest >>= 7
    return encoded + b"\\x%02x" % rest


def _fast(wanted: tuple[Wanted, ...], tree: Tree) -> Fast:
    """Generate the loop over matching records. It returns the position and the number of remaining records. No text
    from a file enters its source."""
    order = leaves(tree)
    lines = [
        "def fast(buf, pos, count, match, append):",
        " try:",
        "  while count:",
        "   m = match(buf, pos)",
        "   if m is None:",
        "    break",
        f"   {''.join(f'g{number}, ' for number in order)} = m.groups()",
    ]
    lines += [f"   {line}" for number in order for line in _assigned(number, wanted[number])]
    row = "".join(f"v{number}, " if number in order else f"{want.default!r}, " for number, want in enumerate(wanted))
    lines += [
        f"   append(({row}))",
        "   pos = m.end()",
        "   count -= 1",
        " except (KeyError, UnicodeDecodeError, OverflowError):",
        "  pass",
        " return pos, count",
    ]
    scope: dict[str, Any] = {"whole": _whole}
    for most in {want.most for want in wanted if want.most is not None}:
        scope[f"small{most}"] = {bytes([value << 1]): value for value in range(most + 1)}
    exec(compile("\n".join(lines) + "\n", "<avro shapes>", "exec"), scope)  # noqa: S102 (fixed fragments and integers only)
    fast: Fast = scope["fast"]
    return fast


def _assigned(number: int, want: Wanted) -> list[str]:
    """Return the lines that decode a wanted field from its group."""
    group, target = f"g{number}", f"v{number}"
    if want.text:
        text = f"{group}[2 if {group}[0] > 127 else 1:].decode()"
        return [f"{target} = {text if want.required else f'None if {group} is None else {text}'}"]
    if want.most is not None:
        lines = [f"{target} = small{want.most}[{group}]"]
    else:
        lines = [
            f"if len({group}) == 4:",
            f" a, b, c, d = {group}",
            " n = a & 127 | (b & 127) << 7 | (c & 127) << 14 | d << 21",
            f"elif len({group}) == 5:",
            f" a, b, c, d, e = {group}",
            " n = a & 127 | (b & 127) << 7 | (c & 127) << 14 | (d & 127) << 21 | e << 28",
            f"elif len({group}) == 3:",
            f" a, b, c = {group}",
            " n = a & 127 | (b & 127) << 7 | c << 14",
            "else:",
            f" n = whole({group})",
            "if n & 1:",
            " break",
            f"{target} = n >> 1",
        ]
    if want.required:
        return lines
    return [f"if {group} is None:", f" {target} = {want.default!r}", "else:", *(f" {line}" for line in lines)]


def _whole(raw: bytes) -> int:
    """Return a varint of any length, before zig-zag decoding. Raises OverflowError beyond 64 bits."""
    value = 0
    for shift, byte in enumerate(raw):
        value |= (byte & 127) << (7 * shift)
    if value >> 64:
        raise OverflowError
    return value
