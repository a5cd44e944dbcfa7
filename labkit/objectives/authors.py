"""Which words the authors' code hides, where it differs from the papers.

BERT and ALBERT hide an exact share of each row, XLNet spans of an exact share in contexts of their
own. `labkit.objectives.hiding` has the rules of the papers.
"""

from itertools import groupby

import torch
from torch import Tensor

from labkit.chance import Chance
from labkit.checks import check_share, check_whole

LONGEST_SPAN = 512  # as long as the texts of BERT


def choose_exactly(
    candidates_BT: Tensor, words_BT: Tensor, chance: Chance, count_B: Tensor, *, longest: int = 1
) -> Tensor:
    """Random n-grams of whole words, P(n) ~ 1/n up to `longest`, while they fit into a count.

    BERT's code takes single words, n = 1, and ALBERT's n-grams of up to 3 words: both in
    create_pretraining_data.py, create_masked_lm_predictions.
    """
    length = candidates_BT.shape[1]
    key, size = chance.bits("hide", length).tolist(), _sizes(chance, length, longest).tolist()
    chosen_BT = torch.zeros_like(candidates_BT)
    for row, most in enumerate(count_B.tolist()):
        number = words_BT[row].tolist()
        positions = candidates_BT[row].nonzero()[:, 0].tolist()
        words = [list(word) for _, word in groupby(positions, key=number.__getitem__)]
        taken: set[int] = set()
        for i in sorted(range(len(words)), key=lambda i: key[row][words[i][0]]):
            gram: list[int] = []
            # One word after the other, as long as the n-gram does not exceed what is left.
            for word in words[i : i + size[row][words[i][0]]]:
                if len(taken) + len(gram) + len(word) > most:
                    break
                gram += word
            if taken.isdisjoint(gram):
                taken.update(gram)
        chosen_BT[row, list(taken)] = True
    return chosen_BT


def choose_in_contexts(
    candidates_BT: Tensor, words_BT: Tensor, chance: Chance, share: float, *, longest: int = 5
) -> Tensor:
    """Spans of n tokens, P(n) ~ 1/n, each somewhere in a stretch of n / share tokens of its own.

    A span begins where a word begins. Single tokens make up what is missing, so the share is exact.
    XLNet's code: data_utils.py, _sample_mask.
    """
    check_share("share", share)
    length = candidates_BT.shape[1]
    key, size = chance.bits("hide", length).tolist(), _sizes(chance, length, longest).tolist()
    before = chance.uniform("before", length).tolist()
    chosen_BT = torch.zeros_like(candidates_BT)
    for row, (candidates, word) in enumerate(
        zip(candidates_BT.tolist(), words_BT.tolist(), strict=True)
    ):
        positions = [i for i in range(length) if candidates[i]]
        begins = [i for i in positions if i == 0 or word[i] != word[i - 1]]
        left = count_of(len(positions), share)
        taken: set[int] = set()
        position = positions[0] if left else length
        while left > len(taken) and position < length:
            n = min(size[row][position], left - len(taken))
            context = round(n / share)
            skipped = int(before[row][position] * context)
            start = next((i for i in begins if i >= position + skipped), length)
            if start + n > positions[-1]:
                break
            taken.update(i for i in range(start, start + n) if candidates[i])
            position = start + n + context - skipped
        rest = sorted(set(positions) - taken, key=key[row].__getitem__)
        chosen_BT[row, [*taken, *rest[: left - len(taken)]]] = True
    return chosen_BT


def count_of(positions: int, share: float) -> int:
    """How many positions a share of them is: at least one, unless the share is zero."""
    return max(round(positions * share), 1) if positions and share else 0


def _sizes(chance: Chance, length: int, longest: int) -> Tensor:
    """For each position a number n from 1 to `longest`, with P(n) ~ 1/n [B, T]."""
    check_whole("longest", longest, least=1, most=LONGEST_SPAN)
    weights = torch.tensor([1 / n for n in range(1, longest + 1)], dtype=torch.float64)
    table = (weights.cumsum(0) / weights.sum())[:-1].float().to(chance.rows.device)
    return 1 + torch.searchsorted(table, chance.uniform("size", length), right=True)
