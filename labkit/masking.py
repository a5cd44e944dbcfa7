"""Who may look at whom.

One rule: a boolean says True where something takes part.  A mask says: this query may look at
this key.  Masks broadcast to [B, 1, Q, K], are joined with `&`, `|` and `~`, and the queries
are always the last Q of the K keys, so that memory needs no special case.

    causal(T)                       GPT, Transformer-XL with memory: causal(Q, K)
    causal(T) & window(n, T)        GPT-3's banded layers
    causal(T) & real(tokens, pad)   padded batches
    causal(T) & same_segment(ids)   packed documents
    causal(T) | prefix(n, T)        a language model that sees its prompt at once
    up_to(order), before(order)     XLNet's content and query streams

What is hidden from the model, the other half of masking, stands below.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.chance import Chance, scaled
from labkit.text.vocabulary import Vocabulary

__all__ = [
    "before",
    "causal",
    "choose",
    "choose_exactly",
    "choose_in_contexts",
    "choose_spans",
    "choose_words",
    "corrupt",
    "order",
    "ordinary",
    "own_words",
    "prefix",
    "ranks",
    "real",
    "real_keys",
    "same_position",
    "same_segment",
    "up_to",
    "window",
]

Device = torch.device | str | None


def check_tokens(tokens_BT: Tensor, vocabulary: int) -> None:
    """Refuse what is no table of the numbers of words; 0: a vocabulary of any size."""
    if tokens_BT.dim() != 2 or not tokens_BT.numel() or tokens_BT.is_floating_point():
        raise ValueError(
            f"the tokens are {str(tokens_BT.dtype).removeprefix('torch.')} of shape "
            f"{tuple(tokens_BT.shape)}: give whole numbers [B, T], at least one row of one token"
        )
    if tokens_BT.device.type == "cuda":
        check_without_waiting(tokens_BT, vocabulary)
    if tokens_BT.device.type != "cpu":
        return
    low, high = map(int, tokens_BT.aminmax())
    if low < 0 or 0 < vocabulary <= high:
        raise ValueError(
            f"token {low if low < 0 else high} is not in the vocabulary: it has 0 to "
            f"{vocabulary - 1}; use the tokenizer that the model was trained with"
        )


def check_without_waiting(tokens_BT: Tensor, vocabulary: int) -> None:
    """Let a GPU stop at tokens that are not in the vocabulary, when it comes to them.

    The CPU would have to wait for the answer, so it does not say which token it is.
    """
    known_BT = (tokens_BT >= 0) & ((tokens_BT < vocabulary) | (vocabulary == 0))
    torch._assert_async(known_BT.all(), f"a token is not in the vocabulary of {vocabulary}")


def check_mask(mask: Tensor | None, *shape: int | None, name: str = "the mask") -> None:
    """Refuse a mask that is not boolean, or does not broadcast to the shape; None: any size."""
    if mask is None:
        return
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


def _positions(queries: int, keys: int | None, device: Device) -> tuple[Tensor, Tensor]:
    """The places of the queries, as a column, and of the keys, as a row: the queries come last."""
    keys = queries if keys is None else keys
    if queries > keys:
        raise ValueError(
            f"{queries} queries but only {keys} keys: the queries are the last of the keys, "
            "so give at least as many keys"
        )
    place_K = torch.arange(keys, device=device)
    return place_K[keys - queries :, None], place_K[None, :]


def causal(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may look at itself and at what came before it: j <= i."""
    i, j = _positions(queries, keys, device)
    return j <= i


def window(size: int, queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may look less than `size` positions away: |i - j| < size."""
    if size < 1:
        raise ValueError(f"a window of {size} positions sees nothing: give at least 1")
    i, j = _positions(queries, keys, device)
    return (i - j).abs() < size


def prefix(size: int, queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """Every position may look at the first `size` positions: j < size."""
    i, j = _positions(queries, keys, device)
    return (j < size).expand(i.shape[0], j.shape[1])


def same_position(queries: int, keys: int | None = None, *, device: Device = None) -> Tensor:
    """A position may look at itself only: j = i."""
    i, j = _positions(queries, keys, device)
    return i == j


def real(tokens_BT: Tensor, pad: int) -> Tensor:
    """Every position may look at real tokens, none at padding: [B, 1, 1, T]."""
    return real_keys(tokens_BT != pad)


def real_keys(real_BT: Tensor) -> Tensor:
    """The same, from a table that is True at real tokens."""
    return real_BT[:, None, None, :]


def same_segment(ids_BT: Tensor) -> Tensor:
    """Positions of one document may look at each other: [B, 1, T, T]."""
    return (ids_BT[:, :, None] == ids_BT[:, None, :])[:, None]


def up_to(order_BT: Tensor, memory: int = 0) -> Tensor:
    """XLNet's content stream: look at what is not later in the order; all may look at memory."""
    return _remember(order_BT[:, None, :] <= order_BT[:, :, None], memory)


def before(order_BT: Tensor, memory: int = 0) -> Tensor:
    """XLNet's query stream: look at what is earlier in the order; all may look at memory."""
    return _remember(order_BT[:, None, :] < order_BT[:, :, None], memory)


def _remember(mask: Tensor, memory: int) -> Tensor:
    """Put `memory` columns that all may look at before a mask [B, T, T]; give [B, 1, T, M + T]."""
    seen = mask.new_ones(*mask.shape[:-1], memory)
    return torch.cat([seen, mask], dim=-1)[:, None]


# ---- what is hidden from the model ---------------------------------------------------------------
#
# What is hidden from the model, and in which order it has to guess.
#
# Devlin et al. 2019, section 3.1 (15 %, of which 80/10/10), Liu et al. 2019, section 4.1 (static
# and dynamic), Joshi et al. 2020, section 3.1 (spans), Yang et al. 2019, section 2.3 (orders, of
# which only the end is predicted).
#
# Every choice is a function of (seed, step, row, position): read `choose` and `corrupt` first. A
# chance made by `Chance.of_examples` gives static masks, any other dynamic ones.


class Hidden(NamedTuple):
    """A text in which something is hidden."""

    tokens: Tensor
    """What the model reads [B, T]."""
    predicted: Tensor
    """True [B, T] where it has to say what stood there."""


def check_share(name: str, share: float) -> None:
    """Refuse what is no share of a whole."""
    if not 0 <= share <= 1:
        raise ValueError(f"{name} is {share}: give a share between 0 and 1, such as 0.15")


def check_shares(shares: Sequence[float], vocabulary: Vocabulary) -> None:
    """Refuse fates that are not three shares of one whole, or need a [MASK] that is not there."""
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(
            f"shares are {tuple(shares)}: give those of [MASK], of a random word and of the word "
            "itself, which add up to 1, such as (0.8, 0.1, 0.1)"
        )
    if shares[0] and vocabulary.mask is None:
        raise ValueError(
            f"the share of [MASK] is {shares[0]}, but the vocabulary has no [MASK]: use a "
            "tokenizer that has one, or shares=(0, 0.5, 0.5)"
        )


def ordinary(tokens_BT: Tensor, real_BT: Tensor, vocabulary: Vocabulary) -> Tensor:
    """True where a real token is a word and no special token: all that may be hidden."""
    check_tokens(tokens_BT, vocabulary.size)
    return _ordinary_words(vocabulary, tokens_BT.device)[tokens_BT] & real_BT


def _ordinary_words(vocabulary: Vocabulary, device: torch.device) -> Tensor:
    """True [V] at the words of the vocabulary that are no special tokens."""
    named = (vocabulary.pad, vocabulary.cls, vocabulary.sep, vocabulary.mask)
    special = {*vocabulary.special, *(token for token in named if token is not None)}
    words_V = torch.ones(vocabulary.size, dtype=torch.bool)
    words_V[sorted(special)] = False
    return words_V.to(device)


def choose(candidates_BT: Tensor, chance: Chance, rate: float) -> Tensor:
    """Each candidate with probability `rate`, on its own."""
    return (chance.uniform("hide", candidates_BT.shape[1]) < rate) & candidates_BT


def choose_words(candidates_BT: Tensor, words_BT: Tensor, chance: Chance, rate: float) -> Tensor:
    """Each word with probability `rate`, with all its pieces: they share the draw of the first."""
    length = words_BT.shape[1]
    begins = torch.ones_like(candidates_BT)
    begins[:, 1:] = words_BT[:, 1:] != words_BT[:, :-1]
    place_T = torch.arange(length, device=words_BT.device)
    first_BT = (place_T * begins).cummax(dim=1).values
    return (chance.uniform("hide", length).gather(1, first_BT) < rate) & candidates_BT


def choose_spans(
    candidates_BT: Tensor, chance: Chance, rate: float, *, stop: float = 0.2, longest: int = 10
) -> Tensor:
    """Spans of geometric length, P(l) ~ (1 - stop)^l up to `longest`, that cover a share `rate`.

    Spans start anywhere, before the text as well, so every candidate is as likely to be covered.
    """
    start, length_table = _span_law(rate, stop, longest)
    before = longest - 1
    width = candidates_BT.shape[1] + before
    place = torch.arange(width, device=candidates_BT.device)
    table = torch.tensor(length_table, device=candidates_BT.device)
    lengths = 1 + torch.searchsorted(table, chance.uniform("length", width), right=True)
    starts = chance.uniform("hide", width) < start
    ends = ((place + lengths) * starts).cummax(dim=1).values
    return (ends > place)[:, before:] & candidates_BT


@lru_cache
def _span_law(rate: float, stop: float, longest: int) -> tuple[float, tuple[float, ...]]:
    """How often a span must start to cover `rate`, and P(length <= l) for l = 1 ... longest - 1."""
    if not 0 < stop <= 1 or longest < 1:
        raise ValueError(f"stop is {stop} and longest {longest}: give 0 < stop <= 1 <= longest")
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
        places = candidates_BT[row].nonzero()[:, 0].tolist()
        words = [list(word) for _, word in groupby(places, key=number.__getitem__)]
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
    length = candidates_BT.shape[1]
    key, size = chance.bits("hide", length).tolist(), _sizes(chance, length, longest).tolist()
    before = chance.uniform("before", length).tolist()
    chosen_BT = torch.zeros_like(candidates_BT)
    for row, (candidates, word) in enumerate(
        zip(candidates_BT.tolist(), words_BT.tolist(), strict=True)
    ):
        places = [i for i in range(length) if candidates[i]]
        begins = [i for i in places if i == 0 or word[i] != word[i - 1]]
        left = count_of(len(places), share)
        taken: set[int] = set()
        place = places[0] if left else length
        while left > len(taken) and place < length:
            n = min(size[row][place], left - len(taken))
            context = round(n / share)
            skipped = int(before[row][place] * context)
            start = next((i for i in begins if i >= place + skipped), length)
            if start + n > places[-1]:
                break
            taken.update(i for i in range(start, start + n) if candidates[i])
            place = start + n + context - skipped
        rest = sorted(set(places) - taken, key=key[row].__getitem__)
        chosen_BT[row, [*taken, *rest[: left - len(taken)]]] = True
    return chosen_BT


def own_words(tokens_BT: Tensor) -> Tensor:
    """The numbers of the words where every token is a word of its own [B, T]."""
    return torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand(tokens_BT.shape)


def count_of(places: int, share: float) -> int:
    """How many places a share of them is: at least one, unless the share is zero."""
    return max(round(places * share), 1) if places and share else 0


def _sizes(chance: Chance, length: int, longest: int) -> Tensor:
    """For each position a number n from 1 to `longest`, with P(n) ~ 1/n [B, T]."""
    weights = torch.tensor([1 / n for n in range(1, longest + 1)], dtype=torch.float64)
    table = (weights.cumsum(0) / weights.sum())[:-1].float().to(chance.rows.device)
    return 1 + torch.searchsorted(table, chance.uniform("size", length), right=True)


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
    place_N = predicted_BT.flatten().nonzero().squeeze(1)
    # One draw decides between the three fates, so the shares cannot overlap.
    fate_N = chance.uniform("fate", length).flatten()[place_N]
    seen_BT = tokens_BT.clone(memory_format=torch.contiguous_format)
    seen = seen_BT.view(-1)
    if masked:
        assert vocabulary.mask is not None
        seen[place_N[fate_N < masked]] = vocabulary.mask
    if swapped:
        swap = place_N[(fate_N >= masked) & (fate_N < masked + swapped)]
        known = torch.ones(vocabulary.size, dtype=torch.bool, device=swap.device)
        known = known if special else _ordinary_words(vocabulary, swap.device)
        seen[swap] = _words(known, frequencies, chance, length, swap)
    return seen_BT


def _words(
    known_V: Tensor, frequencies: Tensor | None, chance: Chance, length: int, swap: Tensor
) -> Tensor:
    """A random word for each position of the batch in `swap`."""
    words = known_V.nonzero().squeeze(1)
    if frequencies is None:
        return words[scaled(chance.bits("word", length).flatten()[swap].long(), len(words))]
    law = frequencies.to(swap.device)[words].double().cumsum(0)
    draws = chance.uniform("word", length).flatten()[swap].double() * law[-1]
    return words[torch.searchsorted(law, draws, right=True)]


class Order(NamedTuple):
    """An order in which the words of each row are predicted."""

    rank: Tensor
    """[B, T] from 0 on; -1 at what everybody sees and nobody predicts."""
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
