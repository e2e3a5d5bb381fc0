"""Where a table is found in a catalog."""

from dataclasses import dataclass

NAMESPACE_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    """Where a table is found in Polaris: catalog, namespace levels (at least one), name.

    Raises ValueError for a part that cannot be one segment of a REST path: empty, holding 0x1F (which separates
    namespace levels there), or `.` and `..`, which URL normalisation would turn into another resource.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        if not self.namespace:
            raise ValueError("a table identifier needs at least one namespace level")
        for part in (self.catalog, *self.namespace, self.name):
            if not part or part in {".", ".."} or NAMESPACE_SEPARATOR in part:
                raise ValueError("a part of a table identifier is empty, a dot segment, or holds the character 0x1F")

    def __str__(self) -> str:
        """Dotted, for people; a level may itself hold a dot, so this is never parsed."""
        return ".".join((self.catalog, *self.namespace, self.name))
