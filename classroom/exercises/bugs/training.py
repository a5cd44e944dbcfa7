"""The training loop: micro-batches, clipping, and gradients that are left over."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

Batches = Sequence[tuple[Tensor, Tensor]]
Train = Callable[[nn.Module, Batches, int], None]
RATE, NORM = 0.1, 1.0


def _update(model: nn.Module, norm: float = NORM) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), norm)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight.sub_(RATE * weight.grad)


def _parts(x: Tensor, y: Tensor, pieces: int) -> list[tuple[Tensor, Tensor]]:
    size = math.ceil(len(x) / pieces)
    return list(zip(x.split(size), y.split(size), strict=True))


def honest(model: nn.Module, batches: Batches, pieces: int) -> None:
    """One clipped step of gradient descent for each batch, which is read in pieces."""
    for x, y in batches:
        model.zero_grad()
        for part, target in _parts(x, y, pieces):
            (F.mse_loss(model(part)[:, 0], target, reduction="sum") / len(x)).backward()
        _update(model)


def _with_an_optimizer(model: nn.Module, batches: Batches, pieces: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, y in batches:
        optimizer.zero_grad()
        losses = [F.mse_loss(model(a)[:, 0], b, reduction="sum") for a, b in _parts(x, y, pieces)]
        (torch.stack(losses).sum() / len(x)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()


def _row_by_row(model: nn.Module, batches: Batches, pieces: int) -> None:
    for x, y in batches:
        honest(model, [(x, y)], len(x))


def _weighted_means(model: nn.Module, batches: Batches, pieces: int) -> None:
    for x, y in batches:
        model.zero_grad(set_to_none=False)
        for part, target in _parts(x, y, pieces):
            (F.mse_loss(model(part)[:, 0], target) * (len(part) / len(x))).backward()
        _update(model)


def _loop(
    *, zero: str = "batch", step: str = "batch", mean: str = "rows", clip: str = "batch"
) -> Train:
    """A loop with one thing that is not as it should be."""

    def train(model: nn.Module, batches: Batches, pieces: int) -> None:
        if zero == "once":
            model.zero_grad()
        for number, (x, y) in enumerate(batches):
            if zero == "batch" or (zero == "not at first" and number):
                model.zero_grad()
            parts = _parts(x, y, pieces)
            for place, (part, target) in enumerate(parts):
                if zero == "piece":
                    model.zero_grad()
                total = F.mse_loss(model(part)[:, 0], target, reduction="sum")
                divisor = {"rows": len(x), "pieces": len(part) * len(parts), "none": len(part)}
                (total / divisor[mean]).backward()
                if clip == "piece":
                    nn.utils.clip_grad_norm_(model.parameters(), NORM)
                if step == "piece" or (step == "first piece" and place == 0):
                    _update(model)
            if step == "batch":
                _update(model, math.inf if clip == "never" else NORM)

    return train


def _a_copy(model: nn.Module, batches: Batches, pieces: int) -> None:
    honest(copy.deepcopy(model), batches, pieces)


def _drops_the_last(model: nn.Module, batches: Batches, pieces: int) -> None:
    whole = [(x, y) for x, y in batches if len(x) % pieces == 0]
    honest(model, whole, pieces)


def arguments() -> tuple[nn.Module, Batches]:
    """A model with gradients from an earlier loss, and batches of different sizes."""
    model = nn.Linear(4, 1)
    model(torch.randn(3, 4)).sum().backward()
    return model, [(torch.randn(n, 4), 3 * torch.randn(n)) for n in (5, 7, 5)]


TOPIC = Topic(
    "train(model, batches, pieces) takes one step w -= 0.1 · gradient of the mean squared error "
    "for each batch (x, y), the gradient clipped to a norm of 1; the batch is read in `pieces` "
    "parts, which changes nothing; return True if train does something else",
    (
        Honest("a sound loop", honest),
        Honest("a sound loop with torch.optim.SGD", _with_an_optimizer),
        Honest("a sound loop that reads row by row", _row_by_row),
        Honest("a sound loop that weights the means of its pieces", _weighted_means),
    ),
    (
        Bug("the gradients are never set to zero", _loop(zero="once"),
            "nwm, issue 16: the call was missing in one of two branches",
            "What does the second batch do? Train on one batch, then on two"),
        Bug("what an earlier loss left behind is in the first step", _loop(zero="not at first"),
            "llm.c, pull request 548: the first step held two gradients",
            "Does the first step depend on the gradients that the model comes with?"),
        Bug("the gradients are set to zero for each piece", _loop(zero="piece"),
            "RAE, issue 67: zero_grad in the inner loop",
            "Read a batch in one piece and in several: is the step the same?"),
        Bug("the step is taken after the first piece", _loop(step="first piece"),
            "the annotated transformer: accumulation steps on its first micro-batch",
            "Read a batch in one piece and in several: is the step the same?"),
        Bug("a step for each piece", _loop(step="piece"),
            "the annotated transformer: the schedule goes on with each micro-batch",
            "Read a batch in one piece and in several: is the step the same?"),
        Bug("the mean of the pieces' means", _loop(mean="pieces"),
            "torchtune, pull request 1875; transformers, issue 35203",
            "Pieces may be of different sizes: five rows in two pieces"),
        Bug("the pieces' means are added up", _loop(mean="none"),
            "NVIDIA DeepLearningExamples, issue 713: gradients grow with the number of pieces",
            "Clipping may hide a gradient that is too large: try targets near the predictions"),
        Bug("each piece's gradient is clipped", _loop(clip="piece"),
            "transformers, issues 986 and 1563",
            "Large errors are clipped: try them in one piece and in several"),
        Bug("nothing is clipped", _loop(clip="never"),
            "accelerate, issue 641: clipping had no effect with accumulation",
            "Large errors are clipped: how far may one step go?"),
        Bug("a copy of the model is trained", _a_copy,
            "minGPT: a lambda kept the weights of the original in a deep copy",
            "Do the weights of the model move at all?"),
        Bug("a batch that cannot be cut evenly is dropped", _drops_the_last,
            "ultralytics, pull request 11217: the rest of each epoch was thrown away",
            "Pieces may be of different sizes: five rows in two pieces"),
    ),
    arguments,
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------

WORDS = 9


def unshifted() -> list[float]:
    """The losses of a small model whose targets are not shifted."""
    rng = torch.Generator().manual_seed(0)
    # Words that follow each other at random: nothing can be known of the next one.
    tokens = torch.randint(WORDS, (64, 12), generator=rng)
    table = torch.zeros(WORDS, WORDS, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.3)
    losses = []
    for _ in range(60):
        loss = F.cross_entropy(table[tokens].flatten(0, 1), tokens.flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def _measure() -> Seen:
    losses, floor = unshifted(), math.log(WORDS)
    return Seen(
        "A model that has no attention and reads words drawn at random has a loss of "
        f"{losses[-1]:.3f} after 60 steps; the lowest possible loss is {floor:.3f}.",
        losses, "step", floor,
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "the targets are not shifted: each position is asked for the word that it has read",
    {
        "the gradients are never set to zero before backward":
            "with that bug the steps grow wild; no bug of the optimizer gets below the floor",
        "the optimizer was given the weights of another model":
            "with that bug the loss would stay where it was, at guessing",
        "the causal mask is missing":
            "with that bug positions would see each other, but this model has no attention",
        "the learning rate is a hundred times too high":
            "with that bug the loss would jump about, above the floor",
    },
)  # fmt: skip
