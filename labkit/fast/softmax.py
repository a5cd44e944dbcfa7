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
    """`labkit.heads.losses` on a CPU; None elsewhere."""
    half = torch.is_autocast_enabled("cpu")
    if half:
        serves = torch.get_autocast_dtype("cpu") == torch.bfloat16
        serves = serves and words_VD.dtype == torch.float32
    else:
        serves = hidden_ND.dtype in (torch.float32, torch.float64)
    if not serves or hidden_ND.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    return InPieces.apply(hidden_ND, words_VD, bias_V, targets_N, half)


class InPieces(torch.autograd.Function):
    """The same losses; their gradients are ready when they are."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        words_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        half: bool,
    ) -> Tensor:
        """The losses [N], and the gradients of their sum."""
        learns = any(ctx.needs_input_grad)
        ones_N = torch.ones(len(hidden_ND)) if learns else None
        losses_N, gradients = in_pieces(hidden_ND, words_VD, bias_V, targets_N, ones_N, half)
        if learns:
            ctx.half = half
            ctx.save_for_backward(hidden_ND, words_VD, bias_V, targets_N, *gradients)
        return losses_N

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the sum, scaled; new ones where the losses do not count the same."""
        hidden_ND, words_VD, bias_V, targets_N, d_hidden, d_words, d_bias = ctx.saved_tensors
        if len(upstream_N) and (upstream_N == upstream_N[0]).all():
            ready = (d_hidden, d_words, d_bias)
            return *(None if d is None else d * upstream_N[0] for d in ready), None, None
        given = (hidden_ND, words_VD, bias_V, targets_N, upstream_N, ctx.half)
        return *in_pieces(*given)[1], None, None


@torch.autocast("cpu", enabled=False)
def in_pieces(
    hidden_ND: Tensor,
    words_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    upstream_N: Tensor | None,
    half: bool,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The losses, and with `upstream`, how much each counts, the gradients of all inputs.

    `half`: products in bfloat16, as autocast would have them; softmax and sums stay exact.
    """
    exact = words_VD.dtype
    product = torch.bfloat16 if half else exact
    given_ND, given_VD = hidden_ND.to(product), words_VD.to(product)
    rows = min(max(1, SCORES // len(words_VD)), len(hidden_ND))
    space = hidden_ND.new_empty(rows, len(words_VD), dtype=exact)
    # Autocast's scores and their gradients are in bfloat16, too.
    narrow = torch.empty_like(space, dtype=product) if half else space
    losses_N = space.new_empty(len(hidden_ND))
    d_hidden, d_words = torch.empty_like(given_ND), torch.zeros_like(words_VD)
    d_bias = None if bias_V is None else torch.zeros_like(bias_V)
    for start in range(0, len(hidden_ND), max(1, rows)):
        piece = slice(start, start + rows)
        some, targets = given_ND[piece], targets_N[piece, None]
        scores, rounded = space[: len(some)], narrow[: len(some)]
        fill(scores, rounded, some, given_VD, bias_V)
        losses_N[piece] = -scores.gather(1, targets)[:, 0]
        if upstream_N is None:
            continue
        # The gradient of a loss with respect to the scores: the probabilities, minus one at the
        # target.
        scores.exp_().scatter_add_(1, targets, scores.new_full(targets.shape, -1))
        scores *= upstream_N[piece, None]
        if half:
            rounded.copy_(scores)
            d_words += torch.mm(rounded.t(), some)
        else:
            # Not addmm_, which torch's counter of operations does not know.
            torch.addmm(d_words, rounded.t(), some, out=d_words)
        torch.mm(rounded, given_VD, out=d_hidden[piece])
        if d_bias is not None:
            d_bias += scores.sum(dim=0)
    return losses_N, (d_hidden.to(hidden_ND.dtype), d_words, d_bias)


def fill(
    log_p_NV: Tensor, scores_NV: Tensor, hidden_ND: Tensor, words_VD: Tensor, bias_V: Tensor | None
) -> None:
    """Write the scores of all words, and their log softmax, which may share memory with them."""
    if bias_V is None:
        torch.mm(hidden_ND, words_VD.t(), out=scores_NV)
    else:
        torch.addmm(bias_V.to(scores_NV.dtype), hidden_ND, words_VD.t(), out=scores_NV)
    if log_p_NV.dtype != scores_NV.dtype:
        log_p_NV.copy_(scores_NV)
    torch.log_softmax(log_p_NV, dim=-1, out=log_p_NV)
