"""`delegation estimate --monthly`."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from delegation.cli.costs.monthly import Cost, MonthlyPrices, Workload, monthly, total
from delegation.cli.errors import CommandError
from delegation.cli.output import print_json
from delegation.cli.screens.layout import Rows
from delegation.worksets import forecast
from polaris_common.errors import counted

BUNDLED = Path(forecast.__file__).parent / "prices.json"


def prices_of(path: Path | None) -> MonthlyPrices:
    """Return the prices of a file, by default those of this release; raises CommandError (PRICE_LIST_REFUSED)."""
    try:
        return MonthlyPrices.model_validate(document_of(path or BUNDLED))
    except ValidationError as error:
        names = ", ".join(".".join(map(str, each["loc"])) for each in error.errors(include_input=False))
        raise CommandError(
            f"{path} lacks prices: {names}",
            "Copy the price file of this release, and change its prices.",
            code="PRICE_LIST_REFUSED",
        ) from None


def document_of(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; raises CommandError (PRICE_LIST_REFUSED)."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(
            f"{path} cannot be read: {type(error).__name__}", "Name a file of JSON.", code="PRICE_LIST_REFUSED"
        ) from None
    if not isinstance(found, dict):
        raise CommandError(f"{path} is not an object", "Name a price file.", code="PRICE_LIST_REFUSED")
    return found


def quantity_text(quantity: float) -> str:
    """Return a quantity without decimals, of small ones two digits that count; nothing for none."""
    if not quantity:
        return ""
    return f"{quantity:,.0f}" if quantity >= 10 or quantity == int(quantity) else f"{quantity:.2g}"


def print_monthly(work: Workload, prices: MonthlyPrices, *, as_json: bool) -> None:
    """Print a month's cost, a line for each kind of use."""
    lines = monthly(work, prices)
    place = {"prices_region": prices.region, "prices_as_of": prices.as_of, "currency": prices.currency}
    if as_json:
        print_json({"total": round(total(lines), 2), **place, "lines": [line._asdict() for line in lines]})
        return
    console = Console(highlight=False)
    table = Rows("service", "of", "in a month", prices.currency, right={"in a month", prices.currency})
    for line in [*lines, Cost("total", "", 0, total(lines))]:
        table.add(line.service, line.what, quantity_text(line.quantity), f"{line.cost:,.2f}")
    console.print(
        f"A month in which {counted(work.tables, 'table')} of {counted(work.files, 'file')} each "
        f"{'is' if work.tables == 1 else 'are'} purged: {work.engine} engine, {work.network} network, "
        f"{work.processor}.\n"
    )
    console.print(table, crop=False)
    console.print(
        f"Prices of {prices.region}, {prices.as_of}, before free tiers; data transfer and storage are not included."
    )
