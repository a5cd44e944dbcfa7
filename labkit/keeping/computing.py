"""How a step is computed: precision, compilation, memory, the randomness of dropout, and speed."""

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.blocks import Backbone, Model, backbone_of
from labkit.chance import key_of
from labkit.checks import first_line
from labkit.corpus import Batch
from labkit.heads import WordHead
from labkit.keeping.processor import TOLD, bfloat16_pays, can_compile, processor_name
from labkit.plan import Plan


class Computing:
    """How the loss is computed. After each forward pass the model has its own methods again."""

    def __init__(
        self, model: nn.Module, plan: Plan, device: torch.device, precision: torch.dtype
    ) -> None:
        self.device, self.precision = device, precision
        check_precision(model, precision, device)
        found = blocks(model) if plan.checkpointing else []
        # Made once, since a compiled model is compiled again for every new function. A block that
        # stands in the list several times is replaced once, or its own method would be lost.
        once = dict.fromkeys(found)
        self.blocks = [(b, partial(checkpoint, b.forward, use_reentrant=False)) for b in once]
        if plan.checkpointing and not self.blocks:
            raise ValueError("checkpointing is on, but this model has no blocks: leave it out")
        self.head: Any = None
        if plan.compile and can_compile():
            backbone_of(model).compile()
            if isinstance(model, Model) and isinstance(model.head, WordHead):
                # With the softmax inside, the scores of all words are never stored in float32.
                self.head, self.losses_N = model.head, torch.compile(model.head.losses_N)

    @contextlib.contextmanager
    def __call__(self, *key: int) -> Iterator[None]:
        """For the forward pass of one part of a step, whose dropout is drawn from the key."""
        for block, forward in self.blocks:
            block.forward = forward
        if self.head is not None:
            self.head.losses_N = self.losses_N
        half = self.precision != torch.float32
        try:
            with (
                seeded(self.device, *key),
                torch.autocast(self.device.type, self.precision, enabled=half),
            ):
                yield
        finally:
            for block, _ in self.blocks:
                del block.forward
            if self.head is not None:
                del self.head.losses_N


@contextlib.contextmanager
def seeded(device: torch.device, *key: int) -> Iterator[None]:
    """Seed torch's generators for dropout, and leave the reader's own randomness as it was."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    states = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(key_of("dropout", *key))
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


@contextlib.contextmanager
def memory_explained(
    plan: Plan, batch: Callable[[], Batch], processes: int, together: int, choices: str
) -> Iterator[None]:
    """Say what to change where a batch does not fit into memory.

    `together` rows cannot be split, and `choices` lists what else can be changed.
    """
    try:
        yield
    except RuntimeError as problem:
        if not any(words in str(problem) for words in NO_MEMORY):
            raise
        try:
            rows, length = batch().tokens.shape
        except RuntimeError:
            # What is drawn from a model, as rollouts are, does not fit a second time.
            raise problem from None
        more = min(2 * plan.accumulate, rows // together // processes)
        parts = ""
        if more > plan.accumulate:
            at_once = math.ceil(rows / (processes * more))
            parts = f"accumulate={more} ({at_once} rows at once, the same result), "
        raise MemoryError(
            f"{math.ceil(rows / (processes * plan.accumulate))} rows of {length} tokens at once "
            f"are more than the memory holds ({first_line(problem)}). Now: "
            f"accumulate={plan.accumulate}, precision={plan.precision!r}, "
            f"checkpointing={plan.checkpointing}. "
            f"Change to {parts}{choices}or make the model, the batch or its texts smaller"
        ) from problem


def smaller(plan: Plan, model: nn.Module, precision: torch.dtype) -> str:
    """The options that need less memory than the plan, as the beginning of a list."""
    checkpointing = "checkpointing=True, " if not plan.checkpointing and blocks(model) else ""
    return checkpointing + ("precision='bfloat16', " if precision == torch.float32 else "")


NO_MEMORY = ("out of memory", "allocate memory", "ALLOC_FAILED")


def blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model's backbone; none where it has no such list."""
    backbone = backbone_of(model)
    return list(backbone.blocks) if isinstance(backbone, Backbone) else []


WIDE = 128
"""From this width on, 16 bits are clearly faster on a CPU that has instructions for them: measured
by `python -m labkit bench trainer precision`. In narrower models changing the format costs nearly
as much as it saves."""


def precision_of(plan: Plan, device: torch.device, width: int = WIDE) -> torch.dtype:
    """The precision of matrix products, for a model of that width."""
    if plan.precision != "auto":
        return getattr(torch, plan.precision)
    fast = (device.type == "cuda" or width >= WIDE) and fast_precision(device)[0] == torch.bfloat16
    return torch.bfloat16 if fast else torch.float32


def fast_precision(device: torch.device) -> tuple[torch.dtype, str]:
    """The faster precision of large matrix products on a device, and the reason."""
    fast = has_bfloat16(device)
    if device.type != "cpu" or not fast:
        name = {"cuda": "GPU"}.get(device.type, device.type)
        why = f"the {name} {'has' if fast else 'lacks'} products of 16-bit numbers"
    else:
        fast = bfloat16_pays()
        told = [f"{name}={os.environ[name]}" for name in TOLD if os.environ.get(name)]
        said = f" with {' '.join(told)}" if told else ""
        why = f"a product in bfloat16 was measured to be {'faster' if fast else 'no faster'}{said}"
    return torch.bfloat16 if fast else torch.float32, why


def check_precision(model: nn.Module, precision: torch.dtype, device: torch.device) -> None:
    """Refuse what torch cannot compute, and warn of what it only emulates."""
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.requires_grad and weight.itemsize < 4:
            raise ValueError(
                f"the weight {name} is {weight.dtype}, in which rounding swallows most updates: "
                "train model.float(); the plan's precision sets the format of products"
            )
    emulated = precision == torch.bfloat16 and not has_bfloat16(device)
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    if device.type == "cpu" and recurrent and (emulated or precision == torch.float16):
        name, where = f"{precision}".removeprefix("torch."), "this CPU" if emulated else "a CPU"
        raise ValueError(
            f"precision is {name!r}, which torch's recurrent networks do not know on {where}: "
            "choose 'float32' or 'auto'"
        )
    if emulated:
        warnings.warn(
            f"precision is 'bfloat16', and this {device.type} only emulates products of such "
            "numbers, which takes many times as long: choose 'auto' or 'float32'",
            stacklevel=4,
        )


def width_of(model: nn.Module) -> int:
    """The width of a model; for a model that is not labkit's, that of its widest matrix."""
    backbone = backbone_of(model)
    if isinstance(backbone, Backbone):
        return backbone.width
    return max((m.in_features for m in model.modules() if isinstance(m, nn.Linear)), default=0)


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies 16-bit numbers by itself; torch may not let a CPU do so."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and _cpu_has_bfloat16()


def processor() -> str:
    """The name of the processor, and whether it lacks products of 16-bit numbers."""
    return processor_name() + ("" if has_bfloat16(torch.device("cpu")) else " without bfloat16")


def _cpu_has_bfloat16() -> bool:
    # Private functions of torch, which some releases lack.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


@cache
def measured_peak(device: str, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product, the best of some tries in a second."""
    if device.startswith("cuda"):
        return _measured(device, dtype, 8192)
    # Where products of 16-bit numbers are only emulated, a large one takes seconds.
    small = _measured(device, dtype, 256)
    return small if 2 * 1024**3 / small > 1 else _measured(device, dtype, 1024)


def _measured(device: str, dtype: torch.dtype, size: int) -> float:
    """Operations per second of a square matrix product of that size."""
    own = torch.Generator(device).manual_seed(0)
    a = torch.randn(size, size, device=device, dtype=dtype, generator=own)
    out = torch.empty_like(a)
    best, end = float("inf"), time.perf_counter() + 1
    for tried in range(8):
        start = time.perf_counter()
        if tried and start > end:
            break
        torch.mm(a, a, out=out)
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
