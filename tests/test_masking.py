"""Who may look at whom, and what is hidden: laws, shares, and independence of everything else."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labkit import checks, masking
from labkit.chance import Chance
from labkit.objectives import MaskedToken, Permutation, hiding
from labkit.text.vocabulary import Vocabulary

PAD, UNK, CLS, SEP, MASK = range(5)
VOCABULARY = Vocabulary(40, PAD, UNK, CLS, SEP, MASK, (PAD, UNK, CLS, SEP, MASK))
SIZES = st.integers(1, 8)
quick = settings(max_examples=25, deadline=None)


def chance(rows: int, seed: int = 1, step: int = 0) -> Chance:
    return Chance(seed, step, torch.arange(rows))


def table(rule, rows: int, columns: int) -> Tensor:
    """A mask written out, one cell after the other."""
    return torch.tensor([[bool(rule(i, j)) for j in range(columns)] for i in range(rows)])


def orders(rows: int, length: int, seed: int = 3) -> Tensor:
    return chance(rows, seed).bits("order", length).argsort(dim=1, stable=True)


# Who may look at whom


@quick
@given(SIZES, SIZES, SIZES)
def test_masks_say_what_their_definitions_say(Q, more, size):
    check_definitions(Q, Q + more - 1, size)


def check_definitions(Q: int = 3, K: int = 5, size: int = 2) -> None:
    past = K - Q
    assert masking.causal(Q, K).equal(table(lambda i, j: j <= i + past, Q, K))
    assert masking.window(size, Q, K).equal(table(lambda i, j: abs(i + past - j) < size, Q, K))
    assert masking.prefix(size, Q, K).equal(table(lambda i, j: j < size, Q, K))
    assert masking.same_position(Q, K).equal(table(lambda i, j: i + past == j, Q, K))


@quick
@given(SIZES, SIZES)
def test_queries_are_the_last_of_the_keys(Q, more):
    K = Q + more - 1
    for rule in (masking.causal, masking.same_position, lambda *n: masking.window(3, *n)):
        assert rule(Q, K).equal(rule(K)[K - Q :])


@quick
@given(SIZES, st.integers(0, 3), st.integers(0, 99))
def test_orders_make_two_streams(T, M, seed):
    check_two_streams(T, M, seed)


def check_two_streams(T: int = 5, M: int = 2, seed: int = 0) -> None:
    order = orders(3, T, seed)
    content, query = masking.up_to(order, M), masking.before(order, M)
    assert content.shape == query.shape == (3, 1, T, M + T)
    assert query.equal(content & ~masking.same_position(T, M + T))
    for row in range(3):
        rank = order[row].tolist()
        told = table(lambda i, j, r=rank: j < M or r[j - M] < r[i], T, M + T)
        assert query[row, 0].equal(told)
    left_to_right = torch.arange(T)[None]
    assert masking.up_to(left_to_right)[0, 0].equal(masking.causal(T))


def test_segments_padding_and_prefix_join():
    ids = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 2]])
    same = masking.same_segment(ids)
    assert same.shape == (2, 1, 4, 4)
    assert same[0, 0].equal(table(lambda i, j: i // 2 == j // 2, 4, 4))
    assert same.equal(same.transpose(-1, -2))
    tokens = torch.tensor([[7, 8, PAD, PAD], [PAD, 9, 9, 9]])
    assert masking.real(tokens, PAD)[:, 0, 0].equal(tokens != PAD)
    joined = masking.causal(4) & masking.real(tokens, PAD) & same
    assert joined[0, 0].equal(table(lambda i, j: (j <= i < 2 and j < 2) or (i, j) == (9, 9), 4, 4))
    seen_at_once = masking.causal(4) | masking.prefix(2, 4)
    assert seen_at_once.equal(table(lambda i, j: j <= i or j < 2, 4, 4))
    assert not (masking.causal(4) | ~masking.causal(4)).logical_not().any()


def test_masks_are_boolean_and_refuse_the_impossible():
    for mask in (
        masking.causal(3),
        masking.window(2, 3),
        masking.prefix(1, 3),
        masking.same_position(3),
    ):
        assert mask.dtype == torch.bool
    with pytest.raises(ValueError, match="4 queries but only 3 keys"):
        masking.causal(4, 3)
    with pytest.raises(ValueError, match="window is 0 positions"):
        masking.window(0, 3)


@pytest.mark.parametrize("size", [-3, math.nan, 2.5, "x", None, 10**30])
@pytest.mark.parametrize(
    "mask",
    [
        lambda n: masking.prefix(n, 4),
        lambda n: masking.window(n, 4),
        lambda n: masking.causal(n),
        lambda n: masking.causal(4, n or -1),
    ],
    ids=["prefix", "window", "causal", "keys"],
)
def test_sizes_of_masks_are_whole_numbers(mask, size):
    with pytest.raises(ValueError, match=r"give (a whole|at least as)") as error:
        mask(size)
    assert "\n" not in str(error.value)


# What is hidden


def corpus(rows: int, length: int, seed: int = 5) -> tuple[Tensor, Tensor]:
    """[CLS] words [SEP] words [SEP], padded; now and then an unknown word."""
    tokens = 5 + chance(rows, seed).integers("text", length, VOCABULARY.size - 5)
    tokens[chance(rows, seed).uniform("unknown", length) < 0.03] = UNK
    lengths = length - torch.arange(rows) % (length // 2)
    place = torch.arange(length)
    tokens[:, 0], tokens[:, length // 2] = CLS, SEP
    tokens[place == lengths[:, None] - 1] = SEP
    real = place < lengths[:, None]
    return tokens.masked_fill(~real, PAD), real


def hide(tokens: Tensor, real: Tensor, draws: Chance, rate: float = 0.15, **how):
    candidates = hiding.ordinary(tokens, real, VOCABULARY)
    predicted = hiding.choose_tokens(candidates, draws, rate)
    return hiding.corrupt(tokens, predicted, draws, VOCABULARY, **how), predicted


def surprise(counts: Tensor, expected: Tensor) -> float:
    """The chi-square statistic less its mean, in standard deviations of its law."""
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    return (statistic - freedom) / (2 * freedom) ** 0.5


def test_ordinary_tokens_are_real_and_no_special_tokens():
    tokens, real = corpus(50, 40)
    ordinary = hiding.ordinary(tokens, real, VOCABULARY)
    assert ordinary.equal((tokens >= 5) & real)
    # [MASK] and the like are no words even when `special` forgets them.
    assert hiding.ordinary(tokens, real, VOCABULARY._replace(special=())).equal(
        ((tokens >= 5) | (tokens == UNK)) & real
    )


@pytest.mark.parametrize("rate", [0.15, 0.4])
@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.1), (0.5, 0.2, 0.3)])
def test_shares(rate, shares):
    check_shares(rate, shares)


def check_shares(rate: float = 0.15, shares: tuple[float, ...] = (0.8, 0.1, 0.1)) -> None:
    """Of 200,000 ordinary tokens: how many are hidden, and how."""
    tokens = 5 + chance(500).integers("text", 400, VOCABULARY.size - 5)
    seen, predicted = hide(
        tokens, torch.ones_like(tokens, dtype=torch.bool), chance(500, 9), rate, shares=shares
    )
    masked, kept = (seen == MASK), (seen == tokens)
    assert not ((seen != tokens) & ~predicted).any()
    # A random word may be the word itself: one time in 35.
    same = shares[1] / (VOCABULARY.size - 5)
    fates = torch.stack([masked, ~masked & ~kept, kept & predicted, ~predicted])
    law = torch.tensor(
        [rate * shares[0], rate * (shares[1] - same), rate * (shares[2] + same), 1 - rate]
    )
    counts = fates.flatten(1).sum(1).double()
    assert abs(surprise(counts, law.double() * tokens.numel())) < 4.5


def test_only_words_are_hidden_and_drawn():
    tokens, real = corpus(200, 60)
    seen, predicted = hide(tokens, real, chance(200), 0.5)
    assert not (predicted & ((tokens < 5) | ~real)).any()
    assert seen[~predicted].equal(tokens[~predicted])
    drawn = seen[predicted & (seen != tokens)]
    assert drawn[drawn != MASK].min() >= 5
    assert (drawn == MASK).any()


def test_random_words_are_as_frequent_as_said():
    tokens = torch.full((500, 400), 7)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    frequencies = torch.arange(40.0) + 1
    for law in (None, frequencies):
        seen = hiding.corrupt(
            tokens, everywhere, chance(500), VOCABULARY, shares=(0, 1, 0), frequencies=law
        )
        counts = torch.bincount(seen.flatten(), minlength=40).double()
        expected = torch.ones(35).double() if law is None else law[5:].double()
        assert counts[:5].sum() == 0
        expected = expected / expected.sum() * tokens.numel()
        assert abs(surprise(counts[5:], expected)) < 4.5


@pytest.mark.parametrize(
    ("frequencies", "message"),
    [
        (torch.ones(39), r"shape \[39\]: give one number for each of the 40 words"),
        (torch.ones(40, 1), r"shape \[40, 1\]"),
        (torch.zeros(40), r"add up to 0\.0: give numbers of at least 0"),
        (torch.full((40,), torch.nan), "add up to nan"),
        (
            torch.tensor([0.0] * 38 + [5.0, -4.0]),
            r"lowest frequency is -4\.0, .* numbers of at least 0, some above 0$",
        ),
    ],
)
def test_frequencies_that_say_nothing_are_refused(frequencies, message):
    tokens = torch.full((50, 40), 7)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        hiding.corrupt(tokens, everywhere, chance(50), VOCABULARY, frequencies=frequencies)


def test_tokens_of_32_bits_are_hidden_as_those_of_64():
    tokens = torch.randint(5, 40, (4, 32), generator=torch.Generator().manual_seed(0))
    every = torch.ones_like(tokens, dtype=torch.bool)
    seen = hiding.corrupt(tokens, every, chance(4), VOCABULARY)
    short = hiding.corrupt(tokens.int(), every, chance(4), VOCABULARY)
    assert short.dtype == torch.int32
    assert torch.equal(short.long(), seen)


def test_hiding_leaves_what_it_is_given_as_it_was():
    tokens, real = corpus(20, 30)
    before = tokens.clone(), real.clone()
    hide(tokens, real, chance(20), 0.5)
    candidates = hiding.ordinary(tokens, real, VOCABULARY)
    kept = candidates.clone()
    hiding.order(candidates, chance(20), 0.5)
    hiding.choose_spans(candidates, chance(20), 0.5)
    assert tokens.equal(before[0])
    assert real.equal(before[1])
    assert candidates.equal(kept)


@quick
@given(st.integers(1, 12), st.permutations(range(6)), st.integers(0, 9), st.booleans())
def test_padding_other_rows_and_their_order_do_not_matter(more, rows, step, spans):
    check_rows(more, rows, step, spans)


def check_rows(
    more: int = 3, rows: Sequence[int] = (4, 1, 3, 0), step: int = 3, spans: bool = False
) -> None:
    tokens, real = corpus(6, 20)
    wide = torch.nn.functional.pad(tokens, (0, more), value=PAD)
    wide_real = torch.nn.functional.pad(real, (0, more))
    some = torch.tensor(rows[: 1 + step % 6])
    draws = chance(6, step=step)
    here, there = candidates_of(tokens, real), candidates_of(wide, wide_real)
    seen, predicted = hide(tokens, real, draws, 0.4)
    draws_of_some = Chance(1, step, some)
    seen_wide, predicted_wide = hide(wide[some], wide_real[some], draws_of_some, 0.4)
    assert seen_wide[:, :20].equal(seen[some])
    assert predicted_wide[:, :20].equal(predicted[some])
    order = hiding.order(here, draws, 0.3, spans=spans)
    order_wide = hiding.order(there[some], draws_of_some, 0.3, spans=spans)
    assert order_wide.rank[:, :20].equal(order.rank[some])
    assert order_wide.predicted[:, :20].equal(order.predicted[some])
    assert not order_wide.predicted[:, 20:].any()


def candidates_of(tokens: Tensor, real: Tensor) -> Tensor:
    return hiding.ordinary(tokens, real, VOCABULARY)


def test_whole_words_hide_together():
    words = (chance(400, 2).uniform("begin", 500) < 0.5).cumsum(1)
    everywhere = torch.ones_like(words, dtype=torch.bool)
    hidden = hiding.choose_words(everywhere, words, chance(400), 0.15)
    same_word = words[:, 1:] == words[:, :-1]
    assert (hidden[:, 1:] == hidden[:, :-1])[same_word].all()
    first = torch.ones_like(everywhere)
    first[:, 1:] = ~same_word
    share, count = hidden[first].double().mean().item(), int(first.sum())
    assert abs(share - 0.15) < 4.5 * (0.15 * 0.85 / count) ** 0.5
    # Neighbouring words are hidden independently.
    both = (hidden[:, 1:] & hidden[:, :-1])[~same_word].double().mean().item()
    assert abs(both - 0.15**2) < 0.003


def test_spans_cover_all_alike_and_have_geometric_lengths():
    everywhere = torch.ones(4000, 50, dtype=torch.bool)
    covered = hiding.choose_spans(everywhere, chance(4000), 0.15)
    share_T = covered.double().mean(0)
    assert (share_T - 0.15).abs().max() < 4.5 * (0.15 * 0.85 / 4000) ** 0.5
    rare = hiding.choose_spans(torch.ones(300, 4000, dtype=torch.bool), chance(300), 0.004)
    edges = torch.nn.functional.pad(rare, (1, 1)).int().diff(dim=1)
    lengths = (edges == -1).nonzero()[:, 1] - (edges == 1).nonzero()[:, 1]
    counts = torch.bincount(lengths, minlength=11)[1:11].double()
    law = torch.tensor([0.8**k for k in range(10)]).double()
    assert abs(surprise(counts, law / law.sum() * counts.sum())) < 6
    for rate in (0.0, 1.0):
        assert hiding.choose_spans(everywhere[:9], chance(9), rate).double().mean() == rate


def test_static_masks_stay_and_dynamic_masks_move():
    tokens, real = corpus(30, 40)
    examples = torch.arange(30) + 100
    static = [hide(tokens, real, Chance.of_examples(4, examples))[1] for _ in range(2)]
    dynamic = [hide(tokens, real, chance(30, step=step))[1] for step in range(2)]
    assert static[0].equal(static[1])
    assert not dynamic[0].equal(dynamic[1])


def test_orders_are_uniform_and_end_with_what_is_predicted():
    everywhere = torch.ones(24_000, 4, dtype=torch.bool)
    order = hiding.order(everywhere, chance(24_000), 0.5)
    numbers = (order.rank * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = torch.bincount(numbers)
    counts = counts[counts > 0].double()
    assert len(counts) == 24
    assert abs(surprise(counts, torch.full((24,), 1000.0).double())) < 4.5
    assert order.predicted.equal(order.rank >= 2)


@pytest.mark.parametrize("spans", [False, True])
def test_orders_of_real_text(spans):
    tokens, real = corpus(60, 40)
    candidates = candidates_of(tokens, real)
    order = hiding.order(candidates, chance(60), 1 / 6, spans=spans)
    assert (order.rank == -1).equal(~candidates)
    assert not (order.predicted & ~candidates).any()
    for row in range(60):
        count = int(candidates[row].sum())
        ranks, predicted = order.rank[row][candidates[row]], order.predicted[row][candidates[row]]
        assert ranks.sort().values.equal(torch.arange(count))
        assert ranks[predicted].sort().values.equal(torch.arange(count)[count - predicted.sum() :])
        assert predicted.sum() == round(count / 6)
    if spans:
        together = (order.predicted[:, 1:] & order.predicted[:, :-1]).sum() / order.predicted.sum()
        assert together > 0.3


def test_a_row_without_words_has_an_empty_order():
    nothing = torch.zeros(2, 5, dtype=torch.bool)
    for share in (0.0, 0.5, 1.0):
        order = hiding.order(nothing, chance(2), share)
        assert not order.predicted.any()
        assert (order.rank == -1).all()
    every = hiding.order(~nothing, chance(2), 1.0)
    assert every.predicted.all()
    assert not hiding.order(~nothing, chance(2), 0.0).predicted.any()


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"rate is 1\.5: give a share between 0 and 1"):
        checks.check_share("rate", 1.5)
    with pytest.raises(ValueError, match="add up to 1"):
        hiding.check_shares((0.8, 0.1, 0.2), VOCABULARY)
    with pytest.raises(ValueError, match="add up to 1"):
        hiding.check_shares((1.2, -0.1, -0.1), VOCABULARY)
    with pytest.raises(ValueError, match=r"no \[MASK\]"):
        hiding.check_shares((0.8, 0.1, 0.1), VOCABULARY._replace(mask=None))
    hiding.check_shares((0, 0.5, 0.5), VOCABULARY._replace(mask=None))
    with pytest.raises(ValueError, match="stop is 0"):
        hiding.choose_spans(torch.ones(1, 4, dtype=torch.bool), chance(1), 0.15, stop=0)
    for shares in (None, "abc", (math.nan, 0, 1), (1, 0, None), (math.inf, -math.inf, 1)):
        with pytest.raises(ValueError, match="add up to 1"):
            hiding.check_shares(shares, VOCABULARY)


EVERY = torch.ones(1, 4, dtype=torch.bool)
NUMBERS = torch.arange(4)[None]


@pytest.mark.parametrize("share", [math.nan, math.inf, 2, -1, "x", None])
@pytest.mark.parametrize(
    "hide",
    [
        lambda share: hiding.choose_tokens(EVERY, chance(1), share),
        lambda share: hiding.choose_words(EVERY, NUMBERS, chance(1), share),
        lambda share: hiding.choose_spans(EVERY, chance(1), share),
        lambda share: hiding.choose_in_contexts(EVERY, NUMBERS, chance(1), share),
        lambda share: hiding.order(EVERY, chance(1), share),
        lambda share: hiding.choose_spans(EVERY, chance(1), 0.1, stop=share),
        lambda share: MaskedToken(vocabulary=VOCABULARY, rate=share),
        lambda share: Permutation(vocabulary=VOCABULARY, share=share),
    ],
    ids=["tokens", "words", "spans", "contexts", "orders", "stops", "masked", "permuted"],
)
def test_shares_that_are_none_are_refused_wherever_they_are_used(hide, share):
    with pytest.raises(ValueError, match="give a share between 0 and 1"):
        hide(share)


@pytest.mark.parametrize("longest", [0, 2.5, math.nan, 513, 10**30, None])
def test_spans_have_a_limit(longest):
    """Their table would fill all memory."""
    with pytest.raises(ValueError, match="give a whole number from 1 to 512"):
        hiding.choose_spans(EVERY, chance(1), 0.1, longest=longest)
    with pytest.raises(ValueError, match="give a whole number from 1 to 512"):
        hiding.choose_in_contexts(EVERY, NUMBERS, chance(1), 0.1, longest=longest)
