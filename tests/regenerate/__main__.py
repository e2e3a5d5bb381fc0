"""`make regenerate`: write every generated file and recording anew, and name those that changed.

PYTHONPATH=functions:. python -m tests.regenerate                 # what takes seconds
PYTHONPATH=functions:. python -m tests.regenerate --all           # those too that need Java, Node or ten minutes
PYTHONPATH=functions:. python -m tests.regenerate MODULE ...      # some
PYTHONPATH=functions:. python -m tests.regenerate --check         # change nothing; exit 1 if a page is stale
PYTHONPATH=functions:. python -m tests.regenerate --list          # every generator, its files and its command
"""

import argparse
import sys

from tests.kit.printing import print_now
from tests.regenerate.generators import GENERATORS, Generator, When, run, stale


def main() -> int:
    """Run the chosen generators, compare them, or list them."""
    parser = argparse.ArgumentParser(prog="python -m tests.regenerate", description="Generated files and recordings.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--all", action="store_true", help="also the generators that need Java, Node or ten minutes")
    how.add_argument("--check", action="store_true", help="change nothing; exit 1 if a generated page is stale")
    how.add_argument("--list", action="store_true", help="list the generators, their files and their commands")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="these generators only")
    given = parser.parse_args()
    known = {each.module: each for each in GENERATORS}
    if unknown := sorted(set(given.modules) - known.keys()):
        parser.error(f"there is no generator {', '.join(unknown)}; there are {', '.join(known)}")
    if given.list:
        for each in GENERATORS:
            needs = f" ({each.needs})" if each.needs else ""
            print_now(f"{', '.join(each.writes)}\n    {each.when.value}{needs}\n    {each.command}")
        return 0
    whens = {When.ALWAYS, When.ALL} if given.all else {When.ALWAYS}
    chosen = [known[name] for name in given.modules] or [each for each in GENERATORS if each.when in whens]
    return check(chosen) if given.check else regenerate(chosen)


def check(chosen: list[Generator]) -> int:
    """Name what is stale, with the command."""
    pages = [each for each in chosen if each.compared_by is None]
    found = [name for each in pages for name in stale(each)]
    for name in found:
        print_now(f"{name} is stale: run `make regenerate`")
    print_now(f"{len(pages)} generators compared, {len(found)} files are stale; pytest compares the recordings")
    return 1 if found else 0


def regenerate(chosen: list[Generator]) -> int:
    """Run the generators one after another."""
    changed = 0
    for each in chosen:
        for name in run(each):
            changed += 1
            recording = "" if each.compared_by is None else " (a recording: the commit has to give the reason)"
            print_now(f"{name} changed{recording}")
    print_now(f"{len(chosen)} generators ran, {changed} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
