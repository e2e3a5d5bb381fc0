"""The tables of a run: one to purge, small or large, and objects that are not its own."""

from tests.faults.hostile.server import BUCKET
from tests.faults.shared.growth import grow
from tests.kit.lakes.lake import Lake, busy_table

TABLE = "s3://lake/wh/doomed/"
STRANGERS = ("wh/doomed", "wh/doomed2/data/x", "wh/doomed/data/of-no-snapshot", "lake/wh/doomed", "x0", "x1")
LARGE = 600


def world(*, more: int = 0) -> tuple[Lake, frozenset[str]]:
    """Return a lake and the files of its table `doomed`, which has so many more than a small one."""
    lake = Lake()
    busy_table(lake, "doomed")
    if more:
        grow(lake, "doomed", more)
    own = frozenset(lake.below(TABLE))
    busy_table(lake, "sibling")
    lake.objects.update({(BUCKET, key): b"x" for key in STRANGERS})
    lake.objects["other", "kept"] = b"x"
    return lake, own
