"""How a step is computed: precision, compilation, memory, and where dropout gets its chance."""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.blocks import Backbone, Model, backbone_of
from labkit.chance import key_of
from labkit.heads import WordHead
from labkit.keeping.distributed import blocks
from labkit.plan import Plan

if TYPE_CHECKING:
    from labkit.trainer import Trainer


class Computing:
    """How a step computes: things that are undone after it, so that a copy of a model is clean."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        found = blocks(model) if plan.checkpointing else []
        # Made once, since a compiled model is compiled again for every new function.
        self.blocks = [(b, partial(checkpoint, b.forward, use_reentrant=False)) for b in found]
        if plan.checkpointing and not self.blocks:
            raise ValueError("checkpointing is on, but this model has no blocks: leave it out")
        self.head: Any = None
        if plan.compile:
            backbone_of(model).compile()
            if isinstance(model, Model) and isinstance(model.head, WordHead):
                # With the softmax inside, the scores of all words are never stored in float32.
                self.head, self.losses_N = model.head, torch.compile(model.head.losses_N)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """For the time of one step."""
        for block, forward in self.blocks:
            block.forward = forward
        if self.head is not None:
            self.head.losses_N = self.losses_N
        try:
            yield
        finally:
            for block, _ in self.blocks:
                del block.forward
            if self.head is not None:
                del self.head.losses_N


@contextlib.contextmanager
def dice(device: torch.device) -> Iterator[Callable[..., None]]:
    """Seed torch's generators for dropout, and leave the reader's own randomness as it was."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    states = [generator.get_state() for generator in generators]

    def throw(*key: int) -> None:
        for generator in generators:
            generator.manual_seed(key_of("dropout", *key))

    try:
        yield throw
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


@contextlib.contextmanager
def memory_explained(trainer: "Trainer") -> Iterator[None]:
    """Where a batch does not fit: what it was, and what to change."""
    try:
        yield
    except RuntimeError as problem:
        if not any(words in str(problem) for words in NO_MEMORY):
            raise
        plan = trainer.plan
        rows, length = trainer.batches.at(trainer.step).tokens.shape
        said = str(problem).splitlines()[0]
        raise MemoryError(
            f"{math.ceil(rows / trainer.parts)} rows of {length} tokens at once are more than the "
            f"memory holds ({said}). Now: accumulate={plan.accumulate}, "
            f"precision={plan.precision!r}, checkpointing={plan.checkpointing}. "
            f"Change to {', '.join(_smaller(trainer, rows))}"
        ) from problem


NO_MEMORY = ("out of memory", "allocate memory", "ALLOC_FAILED")


def _smaller(trainer: "Trainer", rows: int) -> Iterator[str]:
    """What can be done so that a batch of so many rows fits."""
    plan, count = trainer.plan, trainer.ranks.count
    more = min(2 * plan.accumulate, rows // trainer.objective.together // count)
    if more > plan.accumulate:
        at_once = math.ceil(rows / (count * more))
        yield f"accumulate={more} ({at_once} rows at once, the same result)"
    if not plan.checkpointing and blocks(trainer.model):
        yield "checkpointing=True"
    if trainer.precision == torch.float32:
        yield "precision='bfloat16'"
    yield "or make the model, the batch or its texts smaller"


WIDE = 128
"""From this width on, 16 bits are clearly faster on a CPU that has instructions for them: measured
by `python -m labkit bench trainer precision`. In narrower models changing the format costs nearly
as much as it saves."""


def precision_of(plan: Plan, device: torch.device, width: int = WIDE) -> torch.dtype:
    """The precision of matrix products, for a model of that width."""
    if plan.precision != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
            plan.precision
        ]
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type == "cpu" and width >= WIDE and _cpu_has_bfloat16()
    return torch.bfloat16 if fast else torch.float32


def check_precision(model: nn.Module, precision: torch.dtype, device: torch.device) -> None:
    """Refuse what torch cannot compute."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    if precision == torch.float16 and device.type == "cpu" and recurrent:
        raise ValueError(
            "precision is 'float16', which torch's recurrent networks do not know on a CPU: "
            "choose 'bfloat16' or 'float32'"
        )


def width_of(model: nn.Module) -> int:
    """The width of a model, or where it is no model of labkit that of its widest matrix."""
    backbone = backbone_of(model)
    if isinstance(backbone, Backbone):
        return backbone.width
    return max((m.in_features for m in model.modules() if isinstance(m, nn.Linear)), default=0)


def _cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies 16-bit numbers by itself."""
    # torch has had these questions under such names only, and in some releases not at all.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)
