"""The loss of a softmax over many words, without all its scores at once.

With 30,000 words, the scores of a batch are its largest tensor by far, and on a CPU filling fresh
memory with them takes as long as computing them.  So a few rows at a time are scored, turned into
gradients on the spot, and overwritten by the next: the numbers are the same.
"""

from typing import Any

import torch
from torch import Tensor

SCORES = 2**23
"""How many scores there are at a time, unless one row has more."""


def losses(
    hidden_ND: Tensor, words_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor
) -> Tensor | None:
    """`labkit.heads.losses` on a CPU in float32 or float64; None elsewhere."""
    whole = (
        hidden_ND.device.type != "cpu"
        or hidden_ND.dtype not in (torch.float32, torch.float64)
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
    )
    if whole:
        return None
    if not torch.is_grad_enabled():
        return in_pieces(hidden_ND, words_VD, bias_V, targets_N, None)[0]
    return InPieces.apply(hidden_ND, words_VD, bias_V, targets_N)


class InPieces(torch.autograd.Function):
    """The same losses; their gradients are ready when they are."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, words_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor
    ) -> Tensor:
        """The losses [N], and the gradients of their sum."""
        learns = any(ctx.needs_input_grad)
        ones_N = hidden_ND.new_ones(len(hidden_ND)) if learns else None
        losses_N, gradients = in_pieces(hidden_ND, words_VD, bias_V, targets_N, ones_N)
        if learns:
            ctx.save_for_backward(hidden_ND, words_VD, bias_V, targets_N, *gradients)
        return losses_N

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the sum, scaled; new ones where the losses do not count the same."""
        hidden_ND, words_VD, bias_V, targets_N, d_hidden, d_words, d_bias = ctx.saved_tensors
        if len(upstream_N) and (upstream_N == upstream_N[0]).all():
            ready = (d_hidden, d_words, d_bias)
            return *(None if d is None else d * upstream_N[0] for d in ready), None
        return *in_pieces(hidden_ND, words_VD, bias_V, targets_N, upstream_N)[1], None


def in_pieces(
    hidden_ND: Tensor,
    words_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    upstream_N: Tensor | None,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The losses, and with `upstream`, how much each counts, the gradients of all inputs."""
    rows = max(1, SCORES // len(words_VD))
    space = hidden_ND.new_empty(min(rows, len(hidden_ND)), len(words_VD))
    losses_N = hidden_ND.new_empty(len(hidden_ND))
    d_hidden, d_words = hidden_ND.new_empty(hidden_ND.shape), torch.zeros_like(words_VD)
    d_bias = None if bias_V is None else torch.zeros_like(bias_V)
    for start in range(0, len(hidden_ND), rows):
        piece = slice(start, start + rows)
        some, targets = hidden_ND[piece], targets_N[piece, None]
        scores = torch.mm(some, words_VD.t(), out=space[: len(some)])
        if bias_V is not None:
            scores += bias_V
        torch.log_softmax(scores, dim=-1, out=scores)
        losses_N[piece] = -scores.gather(1, targets)[:, 0]
        if upstream_N is None:
            continue
        # The gradient of a loss with respect to the scores: the probabilities, minus one at the
        # target.
        scores.exp_().scatter_add_(1, targets, scores.new_full(targets.shape, -1))
        scores *= upstream_N[piece, None]
        torch.mm(scores, words_VD, out=d_hidden[piece])
        # Not addmm_, which torch's counter of operations does not know.
        torch.addmm(d_words, scores.t(), some, out=d_words)
        if d_bias is not None:
            d_bias += scores.sum(dim=0)
    return losses_N, (d_hidden, d_words, d_bias)
