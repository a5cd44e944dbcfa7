"""The loss that keeps all experts of a mixture in use.

Shazeer et al. 2017, section 4; Fedus, Zoph and Shazeer 2021, section 2.2. The mixture itself is
`labkit.blocks.Experts`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from labkit.blocks import Experts
from labkit.chance import Chance
from labkit.checks import check_not_negative
from labkit.corpus import Batch
from labkit.heads import exact
from labkit.objectives.base import Objective, Outcome, Targets, Term
from labkit.objectives.memory import Memory


@contextmanager
def routed(model: nn.Module) -> Iterator[list[Tensor]]:
    """Within this, each call of the model's Experts adds the scores of its router to the list."""
    scores: list[Tensor] = []

    def note(router: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scores.append(output)

    experts = [module for module in model.modules() if isinstance(module, Experts)]
    hooks = [module.router.register_forward_hook(note) for module in experts]
    try:
        yield scores
    finally:
        for hook in hooks:
            hook.remove()


def balance(scores: Tensor, used: int) -> Tensor:
    """How unevenly a router [N, experts] uses the experts: 1 when even, experts / used at worst.

    experts * sum_e (share of the choices that fell on e) * (mean probability of e), the first of
    which has no gradient, so that the mean probability of experts chosen too often falls.
    Fedus, Zoph and Shazeer 2021, section 2.2. Give the scores of the positions that count.
    """
    likely = exact(scores).softmax(dim=-1)
    chosen = likely.topk(used, dim=-1).indices
    counts = chosen.flatten().bincount(minlength=scores.shape[-1])
    shares = counts.to(likely.dtype) / chosen.numel()
    return scores.shape[-1] * (shares * likely.mean(dim=0)).sum()


@dataclass(frozen=True, kw_only=True, eq=False)
class Balanced(Objective):
    """An objective for a mixture of experts: its own loss, and weight * (balance of the routers).

    Without it a router soon sends everything to the experts that happened to learn first (Fedus et
    al. 2021, section 2.2). The balance is that of each part of a step, weighed by its rows: shares
    of choices cannot be added up, so it is the one term that depends on how a batch is split.
    """

    objective: Objective
    weight: float = 0.01

    def __post_init__(self) -> None:
        check_not_negative(weight=self.weight)

    @property
    def together(self) -> int:
        """As the objective says."""
        return self.objective.together

    @property
    def remembers(self) -> bool:
        """As the objective says."""
        return self.objective.remembers

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The targets of the objective."""
        targets = self.objective.targets(batch, chance)
        return replace(targets, counts={**targets.counts, "balance": _texts(targets)})

    def loss(self, model: Any, targets: Targets, memory: Memory | None = None) -> Outcome:
        """The loss of the objective, and the balance of the routers at the real positions."""
        with routed(model) as scores:
            outcome = self.objective.loss(model, targets, memory)
        if not scores:
            raise ValueError(
                "the model has no experts to balance: use the objective alone, or build the model "
                "with experts=4"
            )
        real = real_by_size(targets)
        used = next(m.used for m in model.modules() if isinstance(m, Experts))
        rows = targets.counts["balance"]
        each = [
            balance(router[real[len(router)]], used) if rows else 0 * router.sum()
            for router in scores
        ]
        term = Term(torch.stack(each).mean() * rows, rows, self.weight)
        return Outcome({**outcome.terms, "balance": term}, outcome.memory)


def real_by_size(targets: Targets) -> dict[int, Tensor]:
    """Which positions are real, by the number of positions that a forward pass reads.

    The parts of a Sum read rows of unlike widths, of one batch.
    """
    found = {targets.inputs.real.numel(): targets.inputs.real.flatten()}
    for part in targets.parts:
        found |= real_by_size(part)
    return found


def _texts(targets: Targets) -> int:
    """How many rows are not padding alone."""
    return int(targets.inputs.real.any(dim=1).sum())
