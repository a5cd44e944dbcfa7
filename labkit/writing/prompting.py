"""Prompts: a task put into words, with no examples, one, or a few (Brown et al. 2020, section 2).

No weight is changed: the model reads the prompt and is asked how likely each answer is after it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.blocks import evaluating
from labkit.checks import check_whole, require
from labkit.corpus.batch import pad_rows
from labkit.heads import check_next_word, pool
from labkit.writing.reader import checked

Tokens = Sequence[int]


@torch.no_grad()
def log_likelihoods(
    model: Any, prompts: Sequence[Tokens], answers: Sequence[Tokens], *, rows: int = 64
) -> Tensor:
    """log p(answer | prompt) of each answer after each prompt, summed over its tokens."""
    check_next_word(model, "would see the answer that it has to predict")
    for name, texts in (("prompt", prompts), ("answer", answers)):
        require(len(texts) > 0, f"there is no {name}: the list is empty, give at least one")
        for i, text in enumerate(texts):
            checked(model, text, f"{name} {i}")
    check_whole("rows", rows, least=1)
    with evaluating(model):
        if all(len(answer) == 1 for answer in answers):
            return score_words(model, prompts, [word for [word] in answers], rows)
        pairs = [(prompt, answer) for prompt in prompts for answer in answers]
        # Texts of similar length go together, so that little padding is read.
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        said = torch.zeros(len(pairs))
        for start in range(0, len(pairs), rows):
            chosen = order[start : start + rows]
            said[chosen] = score_texts(model, [pairs[i] for i in chosen])
    return said.view(len(prompts), len(answers))


def score_texts(model: Any, pairs: Sequence[tuple[Tokens, Tokens]]) -> Tensor:
    """log p(answer | prompt) of some pairs, in one pass.

    Padding is at the end, where no earlier position sees it.
    """
    where = next(model.parameters()).device
    text_BT = pad_rows([[*prompt, *answer] for prompt, answer in pairs])[0].to(where)
    asked = torch.zeros_like(text_BT[:, 1:], dtype=torch.bool)
    for row, (prompt, answer) in zip(asked, pairs, strict=True):
        row[len(prompt) - 1 : len(prompt) + len(answer) - 1] = True
    hidden_ND = model.backbone(text_BT[:, :-1]).hidden[asked]
    losses = text_BT.new_zeros(asked.shape, dtype=torch.float32)
    losses[asked] = model.head.losses_N(hidden_ND, text_BT[:, 1:][asked]).float()
    return -losses.sum(dim=1).cpu()


def score_words(model: Any, prompts: Sequence[Tokens], words: Sequence[int], rows: int) -> Tensor:
    """log p(word | prompt): each prompt is read once, however many answers there are."""
    where = next(model.parameters()).device
    found = []
    for start in range(0, len(prompts), rows):
        text_BT, real_BT = (part.to(where) for part in pad_rows(prompts[start : start + rows]))
        hidden_BD = pool(model.backbone(text_BT).hidden, real_BT, "last")
        found.append(model.head(hidden_BD).float().log_softmax(dim=-1)[:, list(words)])
    return torch.cat(found).cpu()
