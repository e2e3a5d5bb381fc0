"""docs/upgrade.md lists every default that differs from the former release's."""

import json

from tests.golden.record import defaults, former_release
from tests.paths import DOCS

PAGE = (DOCS / "upgrade.md").read_text(encoding="utf-8")


def test_every_default_that_changed_is_listed() -> None:
    """A setting that is new is listed where its default changes what a deployment does; that no test can know."""
    before, now = json.loads((former_release() / "defaults.json").read_text(encoding="utf-8")), defaults()
    changed = {name for name in before if before[name] != now.get(name)}
    assert changed, "without a change the page needs no table"
    table = PAGE.partition("## Defaults that changed")[2]
    assert [name for name in sorted(changed) if f"| `{name}` |" not in table] == []


def test_the_page_names_the_tests_that_show_what_it_claims() -> None:
    assert "tests/golden/test_rollback.py" in PAGE
    assert (DOCS.parent / "tests/golden/test_rollback.py").is_file()
    assert [path.is_dir() for path in (DOCS.parent / "tests/golden/former").iterdir()] == [True]
