"""What it costs to train a language model: days, money, energy, and what a sum of money buys.

Operations and parameters are counted in `counting.py`.  Every name ends in its unit.
"""

from dataclasses import dataclass
from typing import NamedTuple

from labkit.checks import check_above_zero, is_number, shown

SECONDS_PER_DAY = 86_400
PETAFLOP_PER_SECOND = 1e15


def share(**given: float) -> None:
    """Refuse shares outside (0, 1]."""
    for name, value in given.items():
        if not is_number(value) or not 0 < value <= 1:
            raise ValueError(
                f"{name} is {shown(value)}: it is a share, give more than 0 and at most 1"
            )


# ---- time, money, energy ---------------------------------------------------------------------


def petaflop_days(flop: float) -> float:
    """Days that a machine of 10^15 operations a second needs."""
    return flop / (PETAFLOP_PER_SECOND * SECONDS_PER_DAY)


def training_days(flop: float, *, peak_flop_per_second: float, mfu: float, count: int) -> float:
    """Days on `count` devices that reach the share `mfu` of their peak."""
    check_above_zero(flop=flop, peak_flop_per_second=peak_flop_per_second, count=count)
    share(mfu=mfu)
    return flop / (peak_flop_per_second * mfu * count) / SECONDS_PER_DAY


def rent_dollars(days: float, *, count: float, dollars_per_hour: float) -> float:
    """What `count` devices cost to rent for this many days."""
    check_above_zero(days=days, count=count, dollars_per_hour=dollars_per_hour)
    return 24 * days * count * dollars_per_hour


def energy_kwh(days: float, *, count: float, watts: float, overhead: float = 1.1) -> float:
    """Electricity of this many days; `overhead` is that of the building, its PUE."""
    check_above_zero(days=days, count=count, watts=watts, overhead=overhead)
    return 24 * days * count * watts / 1000 * overhead


def co2_kg(energy_kwh: float, *, kg_per_kwh: float = 0.429) -> float:
    """Carbon dioxide of that electricity; 0.429 kg/kWh: Patterson et al. 2021, table 4 (GPT-3)."""
    check_above_zero(energy_kwh=energy_kwh, kg_per_kwh=kg_per_kwh)
    return energy_kwh * kg_per_kwh


# ---- the largest sensible model ----------------------------------------------------------------


@dataclass(frozen=True)
class ScalingLaw:
    """loss(N, D) = E + A / N^alpha + B / D^beta: Hoffmann et al. 2022, equation 2."""

    name: str
    floor: float
    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss, in nats per token, of a model and a text of these sizes."""
        return self.floor + self.a / parameters**self.alpha + self.b / tokens**self.beta

    def optimum(self, flop: float) -> "Optimum":
        """The sizes with the lowest loss of all with 6 N D = flop: equation 4."""
        check_above_zero(flop=flop)
        ratio = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        n = ratio * (flop / 6) ** (self.beta / (self.alpha + self.beta))
        return Optimum(n, flop / 6 / n, self.loss(n, flop / 6 / n))


class Optimum(NamedTuple):
    """The best use of some operations."""

    parameters: float
    tokens: float
    loss: float


HOFFMANN = ScalingLaw("Hoffmann et al. 2022", 1.69, 406.4, 410.7, 0.34, 0.28)
# The exponents before they were rounded for print: Besiroglu et al. 2024, section 2.
HOFFMANN_UNROUNDED = ScalingLaw("Hoffmann, unrounded", 1.6934, 406.4, 410.7, 0.3392, 0.2849)
BESIROGLU = ScalingLaw("Besiroglu et al. 2024", 1.8172, 482.01, 2085.43, 0.3478, 0.3658)
