"""The experiments behind the claims: a module for each notebook, a function for each claim.

An experiment is `(profile, seed) -> Measured`: it trains small models by the course's recipe and
gives a figure for each test item. `classroom/ledger.py` repeats it with other seeds and judges.
"""

import importlib
import pkgutil

from classroom.ledger import Claim


def claims() -> dict[str, Claim]:
    """Return every claim of the course by its name, in the order of the notebooks."""
    modules = [
        importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    ]
    everything = [claim for module in modules for claim in getattr(module, "CLAIMS", ())]
    found = {claim.id: claim for claim in sorted(everything, key=lambda claim: claim.notebook)}
    if len(found) < len(everything):
        names = [claim.id for claim in everything]
        raise ValueError(
            f"two claims have one name: {sorted({n for n in names if names.count(n) > 1})}"
        )
    return found
