"""Can you compete?  The bill of training a model, to play with."""

from functools import lru_cache

from classroom.demos.base import Demo, choice, slider, whole_slider
from classroom.demos.pieces import Heading, Note, Table
from classroom.demos.rendering import View
from labkit.costs import bills
from labkit.costs import tables as cost_tables


@lru_cache(maxsize=64)
def _bill(model: str, device: str, count: int, mfu: float) -> bills.Bill:
    return bills.bill(model, bills.machine(device), count=count, mfu=mfu)


def costs_view(model: str, device: str, count: int = 1, mfu: float = 0.4) -> View:
    """What it takes to train a published model on so many devices."""
    bill = _bill(model, device, count, mfu)
    rows = (
        ("parameters", f"{bill.parameters:,}"),
        ("active per token", f"{bill.active_parameters:,}"),
        ("tokens", f"{bill.tokens:.4g}"),
        ("operations, 6 N D", f"{bill.rule_flop:.4g}"),
        ("with attention to all keys", _known(bill.formula_flop)),
        ("with attention to visible keys only", _known(bill.masked_flop)),
        ("petaflop/s-days", f"{bill.petaflop_days:,.4g}"),
        ("weights, gradients and optimizer", f"{bill.state_bytes / 1e9:,.4g} GB"),
        ("days", f"{bill.days:,.4g}"),
        ("rent", f"{bill.rent_dollars:,.0f} dollars"),
        ("energy", f"{bill.energy_kwh:,.0f} kWh"),
        ("CO2", f"{bill.co2_kg:,.0f} kg"),
    )
    return View.of(
        "costs",
        Heading(f"{bill.model} on {bill.devices:,} × {bill.device} at {bill.mfu:.0%} of the peak"),
        Table(("what", "how much"), rows, "bill"),
        Note(f"Price: {bill.price}.", "price"),
        *([Note(f"Tokens: {bill.text}. {bill.doubt}", "doubt")] if bill.doubt else []),
    )


def _known(flop: float | None) -> str:
    return "–" if flop is None else f"{flop:.4g}"


def check_billed(model: str) -> str:
    """Return the name of a published model; refuse one whose training cannot be billed."""
    known = bills.model(model).name
    if known not in bills.ready():
        raise ValueError(
            f"for {known} the tables have no number of training tokens: choose one of "
            f"{', '.join(bills.ready())}"
        )
    return known


def costs_demo(model: str = "GPT-3 175B", device: str = "a100") -> Demo:
    """Choose a model and devices, and see days, dollars and kilowatt-hours."""
    known = check_billed(model)
    devices = [row["name"] for row in cost_tables.read_table("hardware")]

    def draw(model: str, device: str, devices: int, mfu: float) -> View:
        return costs_view(model, device, 2**devices, round(mfu, 2))

    controls = {
        "model": choice("model", bills.ready(), known),
        "device": choice("device", devices, bills.machine(device).name),
        "devices": whole_slider("log2 of devices", 10, 0, 15),
        "mfu": slider("share of peak", 0.4, 0.05, 1.0, 0.05),
    }
    return Demo("costs", draw, controls, kept={"devices": (0, 5, 10), "mfu": (0.4,)})
