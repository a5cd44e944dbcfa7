"""Checks of the tensors that a model is given: tokens, segments, targets and masks.

Each message says in one line what was given and what is allowed.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def check_tokens(tokens_BT: Tensor, vocabulary: int) -> None:
    """Refuse anything but token ids [B, T] below `vocabulary`; 0 means no upper limit."""
    if not isinstance(tokens_BT, Tensor):
        raise ValueError(f"the tokens are a {type(tokens_BT).__name__}: give a tensor [B, T]")
    whole = tokens_BT.dtype in (torch.int64, torch.int32)
    if tokens_BT.dim() != 2 or not tokens_BT.numel() or not whole:
        raise ValueError(
            f"the tokens are {str(tokens_BT.dtype).removeprefix('torch.')} of shape "
            f"{tuple(tokens_BT.shape)}: give whole numbers [B, T] of 64 or 32 bits, at least one "
            "row of one token"
        )
    advice = "use the tokenizer that the model was trained with"
    check_range(tokens_BT, vocabulary, "token", "in the vocabulary", advice)


def check_states(model: str, given: Any, tokens_BT: Tensor) -> None:
    """Refuse wrong states from `forward`: heads would read those of other positions."""
    layers = getattr(given, "layers", None)
    if not layers:
        raise ValueError(
            f"{model}.forward gave a {type(given).__name__}: give States(tuple(layers)), the "
            "states that go into the first block and those that come out of each"
        )
    shape, wanted = list(layers[-1].shape), list(tokens_BT.shape)
    if len(shape) != 3 or shape[:2] != wanted:
        raise ValueError(
            f"{model}.forward gave states of shape {shape} for tokens of shape {wanted}: give one "
            "state for each token, [B, T, D]"
        )


def check_targets(targets_N: Tensor, known: int) -> None:
    """Refuse targets that the head does not know; 0: it may know any number of them.

    torch's cross entropy would ignore the target -100 without a word.
    """
    if len(targets_N) and not torch.compiler.is_compiling():
        advice = "give its labels, or words of the tokenizer that it was trained with"
        check_range(targets_N, known, "target", "among those of the head", advice)


def described(part: Any) -> str:
    """The type and the shape of a tensor, or the type of what was given instead."""
    if not isinstance(part, Tensor):
        return f"a {type(part).__name__}"
    return f"{str(part.dtype).removeprefix('torch.')} of shape {list(part.shape)}"


def check_asked(wanted: Any, answers: Any) -> None:
    """Refuse marks of what is predicted that are not booleans in the shape of the answers."""
    fits = isinstance(answers, Tensor) and answers.dim() == 2
    if not fits or described(wanted) != f"bool of shape {list(answers.shape)}":
        raise ValueError(
            f"the mask of what is predicted is {described(wanted)}, and the answers are "
            f"{described(answers)}: give a boolean tensor [B, T], and answers of its shape"
        )


def check_predictions(term: str, parts: Mapping[str, Any]) -> None:
    """Refuse predictions that are not one whole number for each in all their parts."""
    fits = all(isinstance(p, Tensor) and p.dim() == 1 and not p.dtype.is_floating_point
               for p in parts.values())  # fmt: skip
    if not fits or len({len(part) for part in parts.values()}) > 1:
        found = ", ".join(f"{name} {described(part)}" for name, part in parts.items())
        raise ValueError(
            f"the term {term!r} has {found}: give three tensors [N] of whole numbers, one for each "
            "prediction"
        )


def check_positions(rows_N: Tensor, positions_N: Tensor, rows: int, positions: int) -> None:
    """Refuse positions without a state, where that of another row would be read instead.

    On a GPU they are not checked, since that takes time.
    """
    if rows_N.device.type == "cpu" and len(rows_N) and not torch.compiler.is_compiling():
        advice = "a prediction is made from a state of the text"
        check_range(rows_N, rows, "row", "in the batch", advice)
        check_range(positions_N, positions, "position", "in the text", advice)


def check_segments(segments_BT: Tensor | None, tokens_BT: Tensor, known: int) -> None:
    """Refuse segments that are not numbered like the tokens; 0: there may be any number of them."""
    if segments_BT is None or torch.compiler.is_compiling():
        return
    if segments_BT.shape != tokens_BT.shape or segments_BT.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"segments are {str(segments_BT.dtype).removeprefix('torch.')} of shape "
            f"{tuple(segments_BT.shape)}: give a whole number for each token, "
            f"{tuple(tokens_BT.shape)}"
        )
    check_range(segments_BT, known, "segment", "in the model", "number them from 0 on")


def check_range(numbers: Tensor, known: int, name: str, where: str, advice: str) -> None:
    """Refuse numbers below 0, or from `known` on unless that is 0."""
    if numbers.device.type == "cuda":
        check_without_waiting(numbers, known, name, where)
    if numbers.device.type != "cpu":
        return
    low, high = map(int, numbers.aminmax())
    if low < 0 or 0 < known <= high:
        has = f"it has 0 to {known - 1}" if known else "numbers begin at 0"
        raise ValueError(f"{name} {low if low < 0 else high} is not {where}: {has}; {advice}")


def check_without_waiting(
    numbers: Tensor, known: int, name: str = "token", where: str = "in the vocabulary"
) -> None:
    """Raise an error on the GPU, without waiting for it, if a number is not known.

    The CPU would have to wait for the answer, so it does not say which number it is.
    """
    fine = (numbers >= 0) & ((numbers < known) | (known == 0))
    wrong = f"a {name} is not {where} of {known}" if known else f"a {name} is below 0"
    torch._assert_async(fine.all(), wrong)


def check_mask(mask: Tensor | None, *shape: int | None, name: str = "the mask") -> None:
    """Refuse a mask that is not boolean, or does not broadcast to the shape; None: any size."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise ValueError(f"{name} is a {type(mask).__name__}: give a boolean tensor")
    fits = mask.dim() <= len(shape) and all(
        size in (1, wanted) or wanted is None
        for size, wanted in zip(reversed(mask.shape), reversed(shape), strict=False)
    )
    if mask.dtype != torch.bool or not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name} is {str(mask.dtype).removeprefix('torch.')} of shape {tuple(mask.shape)}: "
            f"give a boolean one that broadcasts to ({wanted}); True takes part"
        )
