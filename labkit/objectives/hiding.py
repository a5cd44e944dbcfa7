"""Which words are hidden from a model, and in which order they are predicted.

Devlin et al. 2019, section 3.1 (15 %, of which 80/10/10), Liu et al. 2019, section 4.1 (static
and dynamic), Joshi et al. 2020, section 3.1 (spans), Yang et al. 2019, section 2.3 (orders, of
which only the end is predicted).

Every choice is a function of (seed, step, row, position). A chance made by `Chance.of_examples`
gives static masks, any other dynamic ones. Read `choose_tokens` and `corrupt` first. The authors'
code differs from the papers: BERT and ALBERT hide an exact share of each row (`choose_exactly`),
XLNet spans of an exact share (`choose_in_contexts`).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.chance import Chance, scaled
from labkit.checks import check_share, check_type, check_whole, shown
from labkit.tensor_checks import check_tokens
from labkit.text.vocabulary import Vocabulary

LONGEST_SPAN = 512  # as long as the texts of BERT


def check_shares(shares: Sequence[float], vocabulary: Vocabulary) -> None:
    """Refuse fates that are not three shares of one whole, or need a [MASK] that is not there."""
    check_type("vocabulary", vocabulary, Vocabulary, "tokenizer.vocabulary")
    numbers = isinstance(shares, Sequence) and all(isinstance(share, Real) for share in shares)
    # No comparison with NaN is true.
    if not (numbers and len(shares) == 3 and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):
        raise ValueError(
            f"shares are {shown(shares)}: give those of [MASK], of a random word and of the word "
            "itself, which add up to 1, such as (0.8, 0.1, 0.1)"
        )
    if shares[0] and vocabulary.mask is None:
        raise ValueError(
            f"the share of [MASK] is {shares[0]}, but the vocabulary has no [MASK]: use a "
            "tokenizer that has one, or shares=(0, 0.5, 0.5)"
        )


def ordinary(tokens_BT: Tensor, real_BT: Tensor, vocabulary: Vocabulary) -> Tensor:
    """True at real tokens that are not special: those that may be hidden."""
    check_tokens(tokens_BT, vocabulary.size)
    known_V = _ordinary_words(vocabulary, tokens_BT.device)
    # The same as known_V[tokens_BT], in a quarter of the time.
    return known_V.index_select(0, tokens_BT.flatten()).view_as(real_BT) & real_BT


def _ordinary_words(vocabulary: Vocabulary, device: torch.device) -> Tensor:
    """True [V] at the words of the vocabulary that are not special tokens."""
    named = (vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask)
    special = {*vocabulary.special, *(token for token in named if token is not None)}
    words_V = torch.ones(vocabulary.size, dtype=torch.bool)
    words_V[sorted(special)] = False
    return words_V.to(device)


def choose_tokens(candidates_BT: Tensor, chance: Chance, rate: float) -> Tensor:
    """Each candidate with probability `rate`, on its own."""
    check_share("rate", rate)
    return (chance.uniform("hide", candidates_BT.shape[1]) < rate) & candidates_BT


def choose_words(candidates_BT: Tensor, words_BT: Tensor, chance: Chance, rate: float) -> Tensor:
    """Each word with probability `rate`, with all its pieces: they share the draw of the first."""
    check_share("rate", rate)
    length = words_BT.shape[1]
    begins = torch.ones_like(candidates_BT)
    begins[:, 1:] = words_BT[:, 1:] != words_BT[:, :-1]
    position_T = torch.arange(length, device=words_BT.device)
    first_BT = (position_T * begins).cummax(dim=1).values
    return (chance.uniform("hide", length).gather(1, first_BT) < rate) & candidates_BT


def choose_spans(
    candidates_BT: Tensor, chance: Chance, rate: float, *, stop: float = 0.2, longest: int = 10
) -> Tensor:
    """Spans of geometric length, P(l) ~ (1 - stop)^l up to `longest`, that cover a share `rate`.

    Spans start anywhere, before the text as well, so every candidate is as likely to be covered.
    """
    start, length_table = _span_lengths(rate, stop, longest)
    before = longest - 1
    width = candidates_BT.shape[1] + before
    position = torch.arange(width, device=candidates_BT.device)
    table = torch.tensor(length_table, device=candidates_BT.device)
    lengths = 1 + torch.searchsorted(table, chance.uniform("length", width), right=True)
    starts = chance.uniform("hide", width) < start
    ends = ((position + lengths) * starts).cummax(dim=1).values
    return (ends > position)[:, before:] & candidates_BT


@lru_cache
def _span_lengths(rate: float, stop: float, longest: int) -> tuple[float, tuple[float, ...]]:
    """How often a span must start to cover `rate`, and P(length <= l) for l = 1 ... longest - 1."""
    check_share("rate", rate)
    check_share("stop", stop)
    check_whole("longest", longest, least=1, most=LONGEST_SPAN)
    if not stop:
        raise ValueError("stop is 0, so that no span ends: give a share above 0, such as 0.2")
    weights = [(1 - stop) ** k for k in range(longest)]
    up_to = [sum(weights[: k + 1]) / sum(weights) for k in range(longest)]
    low, high = 0.0, 1.0
    for _ in range(60):
        # A position stays open when no span of the last `longest` positions reaches it.
        start, free = (low + high) / 2, 1.0
        for k in range(longest):
            free *= 1 - start * (1 - (up_to[k - 1] if k else 0.0))
        low, high = (start, high) if 1 - free < rate else (low, start)
    return high, tuple(up_to[:-1])


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
            if len(taken) >= most:
                break
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
    """Spans of n tokens, P(n) ~ 1/n, each with n / share other tokens around it.

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
        left = max(round(len(positions) * share), 1) if positions and share else 0
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


def _sizes(chance: Chance, length: int, longest: int) -> Tensor:
    """For each position a number n from 1 to `longest`, with P(n) ~ 1/n [B, T]."""
    check_whole("longest", longest, least=1, most=LONGEST_SPAN)
    weights = torch.tensor([1 / n for n in range(1, longest + 1)], dtype=torch.float64)
    table = (weights.cumsum(0) / weights.sum())[:-1].float().to(chance.rows.device)
    return 1 + torch.searchsorted(table, chance.uniform("size", length), right=True)


def own_words(tokens_BT: Tensor) -> Tensor:
    """The numbers of the words where every token is a word of its own [B, T]."""
    return torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand(tokens_BT.shape)


def corrupt(
    tokens_BT: Tensor,
    predicted_BT: Tensor,
    chance: Chance,
    vocabulary: Vocabulary,
    *,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    frequencies: Tensor | None = None,
    special: bool = False,
) -> Tensor:
    """Replace 80 % of what is predicted by [MASK] and 10 % by any word; leave 10 %.

    The random words are as frequent as `frequencies` [V] says, or all equally frequent. They are
    never special tokens, unless `special`: BERT's code draws from the whole vocabulary
    (create_pretraining_data.py, create_masked_lm_predictions).
    """
    masked, swapped, _ = shares
    length = tokens_BT.shape[1]
    # Only what is predicted is looked at from here on: a small part of the text.
    position_N = predicted_BT.flatten().nonzero().squeeze(1)
    # One draw decides between the three fates, so the shares cannot overlap.
    fate_N = chance.uniform("fate", length).flatten()[position_N]
    seen_BT = tokens_BT.clone(memory_format=torch.contiguous_format)
    seen = seen_BT.view(-1)
    if masked:
        assert vocabulary.mask is not None
        seen[position_N[fate_N < masked]] = vocabulary.mask
    if swapped:
        swap = position_N[(fate_N >= masked) & (fate_N < masked + swapped)]
        known_V = _ordinary_words(vocabulary, swap.device)
        known_V = torch.ones_like(known_V) if special else known_V
        seen[swap] = _words(known_V, frequencies, chance, length, swap).to(seen.dtype)
    return seen_BT


def _words(
    known_V: Tensor, frequencies: Tensor | None, chance: Chance, length: int, swap: Tensor
) -> Tensor:
    """A random word for each position of the batch in `swap`."""
    words = known_V.nonzero().squeeze(1)
    if frequencies is None:
        return words[scaled(chance.bits("word", length).flatten()[swap].long(), len(words))]
    if frequencies.shape != known_V.shape:
        raise ValueError(
            f"frequencies have the shape {list(frequencies.shape)}: give one number for each of "
            f"the {len(known_V)} words of the vocabulary"
        )
    up_to = frequencies.to(swap.device)[words].double().cumsum(0)
    if not 0 < float(up_to[-1]) < math.inf or bool((frequencies < 0).any()):
        raise ValueError(
            f"the lowest frequency is {float(frequencies.min())}, and those of all words that may "
            f"be drawn add up to {float(up_to[-1])}: give numbers of at least 0, some above 0"
        )
    draws = chance.uniform("word", length).flatten()[swap].double() * up_to[-1]
    return words[torch.searchsorted(up_to, draws, right=True)]


class Order(NamedTuple):
    """An order in which the words of each row are predicted."""

    rank: Tensor
    """[B, T] from 0 on; -1 at positions that all attend to and that are not predicted."""
    predicted: Tensor
    """True [B, T] where a word has to be predicted."""


def order(
    candidates_BT: Tensor,
    chance: Chance,
    share: float = 1.0,
    *,
    spans: bool = False,
    words_BT: Tensor | None = None,
) -> Order:
    """A random order of the candidates; the last `share` of them, at least one, is predicted.

    With spans, what is predicted is chosen by `choose_in_contexts`, and comes last in the order.
    Without `words_BT` every token is a word.
    """
    check_share("share", share)
    if spans:
        words_BT = own_words(candidates_BT) if words_BT is None else words_BT
        predicted_BT = choose_in_contexts(candidates_BT, words_BT, chance, share)
        return Order(ranks(candidates_BT, chance, last_BT=predicted_BT), predicted_BT)
    rank_BT = ranks(candidates_BT, chance)
    count_B1 = candidates_BT.sum(dim=1, keepdim=True)
    wanted_B1 = (count_B1 * share).round().clamp(min=1 if share else 0).long()
    return Order(rank_BT, (rank_BT >= count_B1 - wanted_B1) & candidates_BT)


def ranks(
    ordered_BT: Tensor, chance: Chance, *, last_BT: Tensor | None = None, purpose: str = "order"
) -> Tensor:
    """The ranks of some positions in a random order of each row: from 0 on, -1 at the others."""
    key_BT = chance.bits(purpose, ordered_BT.shape[1]).long()
    if last_BT is not None:
        key_BT = key_BT + (last_BT.long() << 33)
    # What has no rank is sorted to the end, where it does not move the ranks of the others.
    key_BT = key_BT.masked_fill(~ordered_BT, 1 << 62)
    order_BT = key_BT.argsort(dim=1, stable=True)
    rank_BT = torch.empty_like(key_BT).scatter_(1, order_BT, own_words(key_BT))
    return rank_BT.masked_fill(~ordered_BT, -1)
