"""Objectives: which words count in a masked language model's loss, and how they are averaged."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
WORDS = 7


def honest(logits_BTV: Tensor, tokens_BT: Tensor, predicted_BT: Tensor) -> Tensor:
    """The mean of -log p(original word) over all predicted positions."""
    return F.cross_entropy(logits_BTV[predicted_BT], tokens_BT[predicted_BT])


def _each(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")


def _ignoring(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    labels = tokens.masked_fill(~predicted, -100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _by_weights(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    weights = predicted.double()
    return ((_each(logits, tokens).double() * weights).sum() / weights.sum()).to(logits.dtype)


def _word_by_word(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    rows, columns = predicted.nonzero(as_tuple=True)
    picked = [logits[b, t].logsumexp(0) - logits[b, t, tokens[b, t]]
              for b, t in zip(rows.tolist(), columns.tolist(), strict=True)]  # fmt: skip
    return torch.stack(picked).mean()


def _too_late(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    # cross_entropy has taken the mean already: the weights multiply one number.
    mean = F.cross_entropy(logits.transpose(1, 2), tokens)
    return (mean * predicted).sum() / predicted.sum()


def _padded_slots(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    most = int(predicted.sum(dim=1).max())
    losses = []
    for scores, words, chosen in zip(logits, tokens, predicted, strict=True):
        where = chosen.nonzero()[:, 0]
        empty = most - len(where)
        where = F.pad(where, (0, empty))
        losses.append(F.cross_entropy(scores[where], F.pad(words[chosen], (0, empty))))
    return torch.stack(losses).mean()


def _row_means(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    each = _each(logits, tokens) * predicted
    return (each.sum(dim=1) / predicted.sum(dim=1)).mean()


def _shifted(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    later = tokens.roll(-1, dims=1)
    return honest(logits, later, predicted)


def _never(word: int) -> Loss:
    """A loss in which one word is never predicted."""

    def loss(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
        kept = predicted & (tokens != word)
        return honest(logits, tokens, kept if kept.any() else predicted)

    return loss


def arguments() -> tuple[Tensor, Tensor, Tensor]:
    """Logits [B, T, V], the original words [B, T] and which are predicted: some in each row."""
    logits = torch.randn(3, 6, WORDS).requires_grad_()
    tokens = torch.randint(1, WORDS, (3, 6))
    predicted = torch.rand(3, 6) < 0.4
    predicted[:, 1], predicted[0, 2:4], predicted[1, 2:] = True, True, False
    tokens[0, 1], tokens[0, 2] = WORDS - 1, 1
    return logits, tokens, predicted


TOPIC = Topic(
    "loss(logits, tokens, predicted) returns the mean of −log p(tokens) over the predicted "
    "positions; return True if loss is something else",
    (
        Honest("a sound loss", honest),
        Honest("a sound loss with ignore_index", _ignoring),
        Honest("a sound loss with weights in 64 bits", _by_weights),
        Honest("a sound loss that goes word by word", _word_by_word),
    ),
    (
        Bug("the weights come after the mean", _too_late,
            "d2l, bert-pretraining: a scalar loss is multiplied by the weights",
            "Change the logits where nothing is predicted"),
        Bug("empty slots predict word 0 at position 0", _padded_slots,
            "nlp-tutorial, BERT in one file: masked_tokens is padded with zeros",
            "Rows may have different numbers of predicted words"),
        Bug("the mean of the rows' means", _row_means,
            "LLMs-from-scratch and litgpt: means of batch means",
            "Rows may have different numbers of predicted words"),
        Bug("all positions count",
            lambda logits, tokens, predicted: _each(logits, tokens).mean(),
            "transformers, issue 2759: labels were marked with −100 and ignored at −1",
            "Change the logits where nothing is predicted"),
        Bug("the last word of the vocabulary is never learned", _never(WORDS - 1),
            "trl, issue 976; transformers, issue 23530: padding and the end share a token",
            "Some word may never count: let each word be predicted once"),
        Bug("the softmax is taken twice",
            lambda logits, *words: honest(logits.softmax(-1), *words),
            "tflearn, pull request 562; lightning-bolts, issue 654",
            "Calculate the loss of one word yourself and compare"),
        Bug("the target is the next word", _shifted,
            "transformers, issues 47394 and 46897: labels that were shifted once more",
            "Calculate the loss of one word yourself and compare"),
        Bug("the sum over all predicted words",
            lambda logits, tokens, predicted: honest(logits, tokens, predicted) * predicted.sum(),
            "transformers, issue 35203: divided by the wrong number of words",
            "Calculate the loss of one word yourself, then of two"),
        Bug("no gradient flows",
            lambda *given: honest(*given).detach(),
            "trl, issue 6668: nothing was learned and nobody noticed",
            "A loss is there to be differentiated: look at the gradient, too"),
    ),
    arguments,
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


def diluted() -> list[float]:
    """What the first bug reports for one model as rows get 0, 4, … 28 positions of padding."""
    rng = torch.Generator().manual_seed(0)
    words = torch.randint(1, WORDS, (400, 8), generator=rng)
    losses = []
    for padding in range(0, 32, 4):
        tokens = F.pad(words, (0, padding))
        # The model guesses words evenly and knows padding when it sees it.
        logits = torch.zeros(*tokens.shape, WORDS)
        logits[:, :8, 0], logits[:, 8:, 0] = -20.0, 20.0
        losses.append(float(_too_late(logits, tokens, tokens > 0)))
    return losses


def _measure() -> Seen:
    losses = diluted()
    return Seen(
        f"A model that knows nothing has a loss of {losses[0]:.2f}. In longer batches, whose rows "
        f"are mostly padding, the same model on the same words reports {losses[-1]:.2f}.",
        losses, "positions of padding", losses[0], "as it should be",
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "padding counts in the mean",
    {
        "the softmax is taken twice": "with that bug the loss would be wrong without padding, too",
        "the mean of the rows' means": "all rows have eight words here: their means weigh the same",
        "the sum over all predicted words": "with that bug the loss would be thousands and "
        "would not depend on padding",
        "no gradient flows": "with that bug the number would be right, and training would change "
        "nothing",
    },
)
