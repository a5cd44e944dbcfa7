"""Checks of a plan before its run starts: each field, its range, and what goes together.

`Plan` in `labkit.plan` says what each field means.
"""

import math
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import torch

from labkit.checks import check_choice, is_number


def _whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _number(given: Any) -> bool:
    return _whole(given) or isinstance(given, float)


KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("its name", lambda given: isinstance(given, str)),
    bool: ("True or False", lambda given: isinstance(given, bool)),
    int: ("a whole number", _whole),
    float: ("a number", _number),
}
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "steps accumulate save_every keep patience": (
        "a whole number of at least 1",
        lambda given: given >= 1,
    ),
    "rate eps clip loss_scale": ("a number above 0", lambda given: 0 < given < math.inf),
    "momentum ema_decay": ("0 to below 1", lambda given: 0 <= given < 1),
    "decay": ("0 to below inf", lambda given: 0 <= given < math.inf),
}
DEVICES = "give auto, cpu, cuda or cuda:1"


def check_plan(plan: Any) -> None:
    """Refuse a plan that no run can follow."""
    for name, hint in get_type_hints(type(plan)).items():
        if get_origin(hint) is not tuple:
            check_kind(name, getattr(plan, name), get_args(hint) or (hint,))
    for names, (wanted, fits) in RANGES.items():
        for name in names.split():
            given = getattr(plan, name)
            if given is not None and not fits(given):
                raise ValueError(f"{name} is {given!r}: give {wanted}")
    pair = plan.betas if isinstance(plan.betas, tuple | list) else ()
    if len(pair) != 2 or not all(_number(beta) and 0 <= beta < 1 for beta in pair):
        raise ValueError(f"betas are {plan.betas!r}: give two numbers from 0 to below 1")
    check_device(plan.device)
    for contradiction in contradictions(plan):
        raise ValueError(contradiction)


def check_kind(name: str, given: Any, kinds: tuple[Any, ...]) -> None:
    """Refuse what is not of one of these types, or none of these texts."""
    if all(isinstance(kind, str) for kind in kinds):
        check_choice(name, given, *kinds)
    elif not (given is None and NoneType in kinds):
        wanted, fits = KINDS[kinds[0]]
        if not fits(given):
            # JSON, in which checkpoints store the plan, has no NumPy numbers.
            kind = ", as a Python number" if is_number(given) and not _number(given) else ""
            raise ValueError(f"{name} is {given!r}: give {wanted}{kind}")


def check_device(device: str) -> None:
    """Refuse a device on which labkit does not train."""
    try:
        kind = torch.device("cpu" if device == "auto" else device).type
    except RuntimeError as problem:
        raise ValueError(f"device is {device!r}: {DEVICES}") from problem
    if kind not in ("cpu", "cuda"):
        lacks = "labkit does not support"
        if kind == "mps":
            lacks = "has no 64-bit numbers for exact sums"
        raise ValueError(f"device is {device!r}, which {lacks}: {DEVICES}")


def contradictions(plan: Any) -> Iterator[str]:
    """Yield what is wrong with combinations of fields."""
    if plan.warmup is not None and not 0 <= plan.warmup < plan.steps:
        yield (
            f"a warm-up of {plan.warmup} steps does not fit a run of {plan.steps}: "
            "give fewer steps of warm-up or more steps"
        )
    if plan.decay_from == "start" and plan.schedule not in ("linear", "cosine"):
        yield (
            f"decay_from is 'start' with the schedule {plan.schedule}: "
            "choose linear or cosine, or leave decay_from out"
        )
    if plan.average_from is not None and plan.average == "none":
        yield (
            f"average_from is {plan.average_from} but average is 'none': nothing would be "
            "averaged; choose average='mean' or 'ema', or leave average_from out"
        )
    if plan.average_from is not None and not 1 <= plan.average_from < plan.steps:
        yield (
            f"average_from is {plan.average_from} in a run of {plan.steps} steps: "
            f"give 1 to {plan.steps - 1}"
        )
    if plan.momentum and plan.optimizer != "sgd":
        yield (
            f"momentum is {plan.momentum} but the optimizer is {plan.optimizer!r}: leave momentum "
            "out or choose optimizer='sgd'"
        )
    if plan.optimizer == "muon" and plan.processes == "fsdp":
        yield (
            "Muon needs whole matrices, and processes='fsdp' shards them: "
            "choose processes='ddp' or optimizer='adamw'"
        )
