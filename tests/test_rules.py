"""Rules of the authors' code, against numbers worked out by hand or from the text of the rule."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pairings import CLS, SEP, VOCABULARY, V, batch, chance, gpt_with_label, named, xlnet
from torch import Tensor

from labkit import fast
from labkit.blocks import LanguageModel, halves
from labkit.chance import Chance
from labkit.corpus import Batch, Pairs, Streams, from_documents, tokenize
from labkit.fast import decoding
from labkit.heads import NextWord
from labkit.masking import real_keys
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig, OneBiasLSTM, WeightedSum
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import (
    BothDirections,
    MaskedToken,
    NextToken,
    Permutation,
    auxiliary,
    hiding,
)
from labkit.plan import Plan
from labkit.sampling import Sampling, nucleus, sample
from labkit.text.tokenizers import Tokenizer
from labkit.text.tokens import NUMBER
from labkit.transfer import groups
from labkit.transfer.mixed import Mixed
from labkit.weights.release_model import read_config, write_config

ROWS = 1500


@dataclass(frozen=True)
class Given(Chance):
    """Random numbers that a test names: one row of one number for each position."""

    numbers: dict[str, list[float]]

    def uniform(self, purpose: str, positions: int) -> Tensor:
        return torch.tensor([self.numbers[purpose]])[:, :positions]

    def bits(self, purpose: str, positions: int) -> Tensor:
        return self.uniform(purpose, positions).int()


def given(**numbers: list[float]) -> Given:
    return Given(0, 0, torch.arange(1), numbers)


def draws(rows: int, seed: int = 1) -> Chance:
    return Chance(seed, 0, torch.arange(rows))


def text(rows: int, length: int, start: int = 5) -> Batch:
    """[CLS] words [SEP], of which the words are of two pieces."""
    tokens = start + draws(rows, 5).integers("text", length, V - start)
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    words = ((torch.arange(length) + 1) // 2).expand(rows, length)
    return Batch.of(tokens, words=words)


def near(found: float, expected: float, count: int, more: float = 0.0) -> bool:
    """Whether a share of `count` draws is within four standard errors of what it should be."""
    return abs(found - expected) <= 4 * (expected * (1 - expected) / count) ** 0.5 + more


# BERT: create_pretraining_data.py, create_masked_lm_predictions


def check_exact_counts() -> None:
    """min(20, max(1, round(0.15 * tokens))), [CLS] and [SEP] among the tokens."""
    for length, most, expected in ((3, None, 1), (7, 20, 1), (10, 20, 2), (128, 20, 19),
                                   (200, 20, 20), (200, None, 30), (200, 7, 7)):  # fmt: skip
        objective = MaskedToken(vocabulary=VOCABULARY, exact=True, most=most)
        asked = objective.choose(text(9, length), draws(9))
        assert asked.sum(dim=1).tolist() == [expected] * 9
    padded = Batch.of(
        torch.arange(5, 25).expand(2, 20), torch.arange(20) < torch.tensor([[4], [20]])
    )
    asked = MaskedToken(vocabulary=VOCABULARY, exact=True).choose(padded, draws(2))
    assert asked.sum(dim=1).tolist() == [1, 3]
    assert not (asked & ~padded.real).any()


def test_exact_counts() -> None:
    check_exact_counts()


def test_every_word_of_a_row_is_as_likely() -> None:
    rows = text(ROWS, 12)
    asked = MaskedToken(vocabulary=VOCABULARY, exact=True).choose(rows, draws(ROWS))
    shares = asked.double().mean(dim=0)
    assert shares[0] == shares[-1] == 0
    for share in shares[1:-1].tolist():
        assert near(share, 2 / 10, ROWS)


def test_rows_of_seven_tokens_ask_nothing_half_of_the_time_by_default() -> None:
    """[CLS] two words [SEP] two words [SEP]: 0.85^4 = 0.522 of the rows."""
    rows = text(ROWS, 7)
    rows.tokens[:, 3] = SEP
    asked = MaskedToken(vocabulary=VOCABULARY).choose(rows, draws(ROWS))
    assert near((~asked.any(dim=1)).double().mean().item(), 0.85**4, ROWS)


def check_special_random_words() -> None:
    """Of the whole vocabulary of 60 words, 5 are special."""
    tokens = torch.full((300, 100), 7)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    for special, expected in ((True, 5 / V), (False, 0.0)):
        seen = hiding.corrupt(
            tokens, everywhere, draws(300), VOCABULARY, shares=(0, 1, 0), special=special
        )
        assert near((seen < 5).double().mean().item(), expected, tokens.numel())
        assert bool((seen == 59).any())


def test_special_random_words() -> None:
    check_special_random_words()
    objective = MaskedToken(vocabulary=VOCABULARY, rate=1.0, shares=(0, 1, 0), special=True)
    seen = objective.targets(text(99, 99), draws(99)).inputs.tokens
    assert bool((seen[:, 1:-1] < 5).any())


# ALBERT: the function of the same name


def check_ngrams_by_hand() -> None:
    """Words of 1, 2, 1, 2, 1 tokens; the order of the keys is word 3, 1, 4, 0, 2.

    Sizes are 1, 2, 3 for numbers below 6/11 = 0.545, 9/11 = 0.818, 1. Word 3 draws 0.9: three words
    of which two are left, of 2 + 1 tokens, so both are taken. Word 1 draws 0.6: two words of 2 + 1
    tokens, but only two tokens are left: it is taken alone. Nothing fits after that.
    """
    words = torch.tensor([[0, 1, 1, 2, 3, 3, 4]])
    everywhere = torch.ones(1, 7, dtype=torch.bool)
    numbers = given(hide=[40, 20, 0, 50, 10, 0, 30], size=[0.1, 0.6, 0.9, 0.1, 0.9, 0.1, 0.1])
    for count, places in ((5, [1, 2, 4, 5, 6]), (4, [0, 4, 5, 6]), (2, [4, 5]), (1, [6])):
        found = hiding.choose_exactly(everywhere, words, numbers, torch.tensor([count]), longest=3)
        assert found[0].nonzero()[:, 0].tolist() == places, count
    # Word 3 draws one word, word 2 three of which the second is taken: it is left out as a whole.
    numbers = given(hide=[40, 20, 0, 15, 10, 0, 30], size=[0.1, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1])
    found = hiding.choose_exactly(everywhere, words, numbers, torch.tensor([5]), longest=3)
    assert found[0].nonzero()[:, 0].tolist() == [1, 2, 4, 5, 6]
    # Single words, in the order of the keys: 3 (two tokens), 1 (two), 4 (one).
    numbers = given(hide=[40, 20, 0, 50, 10, 0, 30], size=[0.9] * 7)
    single = hiding.choose_exactly(everywhere, words, numbers, torch.tensor([5]))
    assert single[0].nonzero()[:, 0].tolist() == [1, 2, 4, 5, 6]


def test_ngrams_by_hand() -> None:
    check_ngrams_by_hand()


def check_ngram_sizes() -> None:
    """P(n) = 1/n / (1 + 1/2 + 1/3) = 6/11, 3/11, 2/11 (Lan et al. 2020, section 4.1)."""
    length, numbers = 600, draws(ROWS)
    everywhere = torch.ones(ROWS, length, dtype=torch.bool)
    words = hiding.own_words(everywhere)
    count_B = torch.full((ROWS,), 3)
    found = hiding.choose_exactly(everywhere, words, numbers, count_B, longest=3)
    begin_B = numbers.bits("hide", length).argmin(dim=1)
    inside = begin_B < length - 3
    one, two, three = (found[inside].gather(1, begin_B[inside, None] + i)[:, 0] for i in range(3))
    assert bool(one.all())
    # Another n-gram stands just beside the first once in a few hundred rows.
    for size, expected in ((~two, 6 / 11), (two & ~three, 3 / 11), (two & three, 2 / 11)):
        assert near(size.double().mean().item(), expected, int(inside.sum()), more=0.005)


def test_ngram_sizes() -> None:
    check_ngram_sizes()
    objective = MaskedToken(vocabulary=VOCABULARY, unit="ngram", exact=True, most=20)
    rows = text(50, 60)
    asked = objective.choose(rows, draws(50))
    assert bool((asked.sum(dim=1) <= 9).all())
    # Whole words: both pieces or none.
    assert asked[:, 1:-1:2].equal(asked[:, 2:-1:2])


# XLNet: data_utils.py, _sample_mask


def check_contexts_by_hand() -> None:
    """Words of two tokens, a share of 1/4 of 20 tokens: 5 are predicted.

    Sizes 1 to 5 are numbers below 60/137 = 0.438, 0.657, 0.803, 0.912, 1. At place 0: 0.7 is a span
    of 3 tokens with a context of 12, of which 0.3 * 12 = 3 are skipped; the next word begins at 4.
    It covers 4, 5, 6, and 9 tokens of context follow, up to 16. At place 16: 0.99 is a span of 5,
    of which 2 are left to predict, in a context of 8; 0.5 * 8 = 4 are skipped and the row is over.
    The two that are missing are single ones, by their keys: 11 and then 2.
    """
    everywhere = torch.ones(1, 20, dtype=torch.bool)
    size, before, hide = [0.0] * 20, [0.0] * 20, [100.0] * 20
    size[0], before[0], size[16], before[16] = 0.7, 0.3, 0.99, 0.5
    hide[5], hide[11], hide[2] = 1, 2, 3
    found = hiding.choose_in_contexts(
        everywhere, (torch.arange(20) // 2)[None], given(size=size, before=before, hide=hide), 0.25
    )
    assert found[0].nonzero()[:, 0].tolist() == [2, 4, 5, 6, 11]


def test_contexts_by_hand() -> None:
    check_contexts_by_hand()


def check_spans_of_xlnet() -> None:
    """P(n) = 60/137, 30/137, 20/137, 15/137, 12/137, from the start of a word, 43 of 256 tokens."""
    length = 200
    everywhere = torch.ones(ROWS, length, dtype=torch.bool)
    words = (torch.arange(length) // 2).expand(ROWS, length)
    # Five tokens and their contexts always fit, so that no single tokens are needed.
    found = hiding.choose_in_contexts(everywhere, words, draws(ROWS), 5.49 / length)
    assert found.sum(dim=1).tolist() == [5] * ROWS
    edges = F.pad(found, (1, 1)).int().diff(dim=1)
    begins, ends = edges.eq(1), edges.eq(-1)
    assert not begins[:, 1::2].any()
    begin_B, end_B = begins.int().argmax(dim=1), ends.int().argmax(dim=1)
    for n in range(1, 6):
        assert near((end_B - begin_B == n).double().mean().item(), 60 / 137 / n, ROWS)
    # A single token stands anywhere in its context of 36, then at the next even place: 17.5 + 0.5.
    single = begin_B[end_B - begin_B == 1].double()
    assert abs(single.mean() - 18) < 4 * 36 / 12**0.5 / len(single) ** 0.5
    rows = text(20, 258)
    order = Permutation(vocabulary=VOCABULARY, spans=True).order(rows, draws(20))
    assert order.predicted.sum(dim=1).tolist() == [43] * 20


def test_spans_of_xlnet() -> None:
    check_spans_of_xlnet()


# XLNet: data_utils.py, _local_perm


def seen_by(objective: Permutation, rows: Batch, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Who sees whom in the content and in the query stream [B, T, T], and what is predicted."""
    targets = objective.targets(rows, chance(rows, seed))
    content, query = objective.masks(targets, torch.ones(len(rows), 0, dtype=torch.bool))
    return content[:, 0], query[:, 0], targets.order.predicted


def check_masks_of_the_release() -> None:
    rows = batch()
    content, query, predicted = seen_by(
        Permutation(vocabulary=VOCABULARY, share=0.5, rule="release"), rows
    )
    for b in range(len(rows)):
        real = rows.real[b].nonzero()[:, 0].tolist()
        special = [i for i in real if rows.tokens[b, i] < 5]
        ordered = [i for i in real if predicted[b, i]] + special
        others = [i for i in real if i not in ordered]
        assert others or b == 2
        # Words that are not predicted see each other, and nothing else.
        for i in others:
            assert content[b, i].nonzero()[:, 0].tolist() == others
        # The others see those, themselves, and each other in one order.
        seen = {i: set(content[b, i].nonzero()[:, 0].tolist()) - set(others) for i in ordered}
        assert sorted(len(one) for one in seen.values()) == list(range(1, 1 + len(ordered)))
        for i in ordered:
            assert i in seen[i]
            assert all(i not in seen[j] for j in seen[i] - {i})
            assert content[b, i, others].all()
            # The query does not see its own word.
            expected = content[b, i].clone()
            expected[i] = False
            assert query[b, i].equal(expected)
        assert not content[b, real][:, ~rows.real[b]].any()


def test_masks_of_the_release() -> None:
    check_masks_of_the_release()


def check_special_tokens_stand_anywhere() -> None:
    """In the release a predicted word sees the last [SEP] half of the time, always in the paper."""
    rows = Batch.of(torch.tensor([[CLS, 7, 8, 9, 10, SEP]]).expand(ROWS, 6))
    for rule, expected in (("release", 0.5), ("paper", 1.0)):
        _, query, predicted = seen_by(
            Permutation(vocabulary=VOCABULARY, share=0.25, rule=rule), rows
        )
        sees = query[:, :, -1][predicted].double()
        assert len(sees) == ROWS
        assert near(sees.mean().item(), expected, ROWS)


def test_special_tokens_stand_anywhere() -> None:
    check_special_tokens_stand_anywhere()


@pytest.mark.parametrize("rule", ["paper", "release"])
def test_the_part_that_is_reused_does_not_see_the_other(rule: str) -> None:
    check_reuse(rule)


def check_reuse(rule: str = "paper") -> None:
    rows = text(40, 21)
    objective = Permutation(vocabulary=VOCABULARY, share=0.3, rule=rule, reuse=11)
    content, _, predicted = seen_by(objective, rows)
    assert not content[:, :11, 11:].any()
    assert content[:, 11:, :11].all()
    # Ten words in the first part and nine in the second, 3 of each.
    assert predicted[:, :11].sum(dim=1).tolist() == [3] * 40
    assert predicted[:, 11:].sum(dim=1).tolist() == [3] * 40
    alone = replace(
        rows, tokens=rows.tokens[:, :11], real=rows.real[:, :11], words=rows.words[:, :11]
    )
    part, _, _ = seen_by(replace(objective, reuse=None), alone)
    assert content[:, :11, :11].equal(part)


def check_memory_of_the_reused_part() -> None:
    """The first four positions of two rows: a memory of 3 keeps the last ones of them."""
    rows = text(3, 9)
    for memory, expected in ((3, [[1, 2, 3], [1, 2, 3]]), (6, [[0, 1, 2, 3], [2, 3, 0, 1, 2, 3]])):
        torch.manual_seed(0)
        model = xlnet(memory=memory).eval()
        objective = Permutation(vocabulary=VOCABULARY, share=0.5, carry=True, reuse=4)
        kept = objective(model, rows, chance(rows)).memory
        first = model.backbone.token(rows.tokens)
        assert torch.equal(kept.layers[0], first[:, expected[0]])
        goes_on = replace(rows, tokens=rows.tokens.roll(2, 1), fresh=torch.zeros(3).bool())
        second = model.backbone.token(goes_on.tokens)
        later = objective(model, goes_on, chance(rows), kept).memory
        joined = torch.cat([first[:, :4], second[:, :4]], dim=1)[:, -memory:]
        assert torch.equal(later.layers[0], joined)
        assert joined.shape[1] == len(expected[1]) == later.known.shape[1]
        # What is remembered of the upper layers does not depend on the part that is not reused.
        other = replace(rows, tokens=torch.cat([rows.tokens[:, :4], rows.tokens[:, 4:] * 0 + 9], 1))
        again = objective(model, other, chance(rows)).memory
        assert torch.allclose(again.layers[1], kept.layers[1], atol=1e-6)


def test_memory_of_the_reused_part() -> None:
    check_memory_of_the_reused_part()


def check_rows_overlap() -> None:
    """Two streams of 14 tokens: rows of 8 that begin 4 apart, as far as they are whole."""
    words = [f"w{i}" for i in range(28)]
    tokens = tokenize(from_documents([" ".join(words)]), Tokenizer.words(words))
    streams = Streams(tokens, 7, stride=4, batch=2)
    each = len(tokens) // 2
    for step in range(streams.steps):
        rows = streams.at(step)
        assert bool(rows.fresh.all()) == (step == 0)
        for row in range(2):
            begin = row * each + 4 * step
            expected = tokens.take(np.arange(begin, begin + 8)) & NUMBER
            assert rows.tokens[row].tolist() == expected.tolist()
    # The second row ends after 4 + 8 = 12 tokens, and a third one would need 16.
    assert (each, streams.steps) == (14, 2)


def test_rows_overlap() -> None:
    check_rows_overlap()
    tokens = tokenize(from_documents(["a b c d e f g h i"]), Tokenizer.words(["a b c d e f g h i"]))
    with pytest.raises(ValueError, match="stride is 9: give a whole number from 1 to 8"):
        Streams(tokens, 7, stride=9, batch=1)
    apart = [rows.tokens[0] for rows in Streams(tokens, 3, stride=4, batch=1).once()]
    assert len(apart) == 2
    assert torch.cat(apart).unique().numel() == 8, "no token is in two rows"


def test_a_model_learns_by_every_rule() -> None:
    model, rows = named("XLNet, permuted").model(), batch()
    for rule in ("paper", "release"):
        for reuse in (None, 5):
            objective = Permutation(vocabulary=VOCABULARY, rule=rule, reuse=reuse, spans=True)
            outcome = objective(model, rows, chance(rows))
            assert outcome.loss.isfinite()
            assert outcome.count >= len(rows)


# GPT: train.py, model


def check_mean_of_means() -> None:
    """lm_losses: the mean over the words of a row, then over the rows."""
    model, rows = gpt_with_label().double().eval(), batch()
    scores = model.words(model.backbone(rows.tokens).hidden)
    means = [
        F.cross_entropy(scores[b, : n - 1], rows.tokens[b, 1:n])
        for b, n in enumerate(rows.real.sum(dim=1).tolist())
    ]
    objective = NextToken(head="words", by_row=True)
    outcome = objective(model, rows, chance(rows))
    torch.testing.assert_close(outcome.loss, torch.stack(means).mean())
    label = F.cross_entropy(model(rows.tokens)[range(4), rows.real.sum(dim=1) - 1], rows.labels)
    both = auxiliary(0.5, by_row=True)(model, rows, chance(rows))
    torch.testing.assert_close(both.loss, label + 0.5 * torch.stack(means).mean())
    assert not torch.allclose(outcome.loss, NextToken(head="words")(model, rows, chance(rows)).loss)


def test_mean_of_means() -> None:
    check_mean_of_means()
    model, rows = gpt_with_label().double().eval(), batch()
    objective = NextToken(head="words", by_row=True)
    parts = [objective.targets(part, chance(part)) for part in rows.micro(3)]
    counts = {"word": sum(part.counts["word"] for part in parts)}
    assert counts == {"word": 4}
    split = sum(objective.loss(model, part).over(counts) for part in parts)
    torch.testing.assert_close(split, objective(model, rows, chance(rows)).loss)


# What is refused


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"exact": True, "unit": "span"}, "give exact=False"),
        ({"unit": "ngram"}, "give exact=True"),
        ({"most": 20}, "give both or neither"),
        ({"most": 0, "exact": True}, "most is 0: give a whole number from 1"),
    ],
)
def test_rules_of_masks_that_cannot_be_are_refused(how: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedToken(vocabulary=VOCABULARY, **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rule": "theirs"}, "choose paper or release"),
        ({"reuse": 0}, "reuse is 0: give a whole number from 1"),
    ],
)
def test_rules_of_orders_that_cannot_be_are_refused(how: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Permutation(vocabulary=VOCABULARY, **how)


# ELMo: bilm/model.py, _build_lstms; bilm/elmo.py, weight_layers; bilm/training.py


def lstm(clip: float | None) -> OneBiasLSTM:
    """Four cells that all grow by about 1 a word, and a projection that adds them: 4 tanh(c)."""
    made = OneBiasLSTM(1, 4, 1, clip=clip).double()
    with torch.no_grad():
        for weights in made.parameters():
            weights.zero_()
        # All gates are open, and what is added is tanh(20) = 1.
        made.bias_ih_l0.fill_(20.0)
        made.weight_hr_l0.fill_(1.0)
    return made


def check_clipping() -> None:
    """Cells 1, 2, 3, 4, 5 become 1, 2, 2.5, 2.5, 2.5; states 4 tanh(c) become 2.5 at most."""
    words, start = torch.zeros(1, 5, 1).double(), (torch.zeros(1, 1, 1), torch.zeros(1, 1, 4))
    start = start[0].double(), start[1].double()
    said, (_, cells) = lstm(None)(words, start)
    assert cells.flatten().tolist() == pytest.approx([5.0] * 4, abs=1e-6)
    grown = torch.arange(1.0, 6.0).double()
    assert torch.allclose(said.flatten(), 4 * grown.tanh())
    said, (state, cells) = lstm(2.5)(words, start)
    assert cells.flatten().tolist() == [2.5] * 4
    assert said.flatten().tolist() == [2.5] * 5
    assert state.flatten().tolist() == [2.5]
    # With a projection a fifth as large only the cells are cut: 4/5 tanh(min(c, 2.5)).
    smaller = lstm(2.5)
    smaller.weight_hr_l0.data.fill_(0.2)
    said, _ = smaller(words, start)
    assert torch.allclose(said.flatten(), 0.8 * grown.clamp(max=2.5).tanh())
    # From below as well.
    smaller.bias_ih_l0.data[8:12] = -20.0
    _, (_, cells) = smaller(words, start)
    assert cells.flatten().tolist() == [-2.5] * 4


def test_clipping() -> None:
    check_clipping()


SMALL = ELMoConfig(8, 10, 4, ((1, 3), (3, 5)), 1, 6, 9, 2)


def elmo(seed: int = 0, **changes) -> ELMo:
    torch.manual_seed(seed)
    return ELMo(replace(SMALL, **changes), [f"w{i}" for i in range(8)]).double().eval()


def check_a_limit_that_is_not_reached() -> None:
    """Word after word is the same as the kernel: padding, memory, gradients."""
    tokens = torch.arange(12).view(2, 6) % 8
    mask = real_keys(torch.arange(6) < torch.tensor([[6], [3]]))
    found = []
    for clip in (None, 50.0):
        model = elmo(clip=clip)
        first = model(tokens, mask=mask)
        second = model(tokens.flip(1), mask=mask, memory=first.memory)
        whole = model(tokens)
        loss = first.hidden.sin().sum() + second.hidden.cos().sum() + whole.hidden.sum()
        found.append([*second.layers, *sum(second.memory, ()),
                      *torch.autograd.grad(loss, list(model.parameters()))])  # fmt: skip
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_limit_that_is_not_reached() -> None:
    check_a_limit_that_is_not_reached()
    with pytest.raises(ValueError, match=r"clip is 0\.0: give a number above 0"):
        elmo(clip=0.0)


def check_both_remember() -> None:
    """The direction from the right goes on from its state at the first word of the text before."""
    tokens = torch.arange(12).view(2, 6) % 8
    first, second = tokens[:, :2], tokens[:, 2:]
    model = elmo(both_remember=True)
    kept = model(first).memory
    assert [len(layer) for layer in kept] == [4, 4]
    alone = elmo()
    left, right = halves(model(second, memory=kept))
    whole, _ = halves(alone(tokens))
    assert torch.allclose(left.hidden, whole.hidden[:, 2:])
    # From the right, what was read is the first text and then the second, each turned round.
    turned = torch.cat([second, first], dim=1)
    _, whole = halves(alone(turned))
    assert torch.allclose(right.hidden, whole.hidden[:, :4])


def test_both_remember() -> None:
    check_both_remember()
    model = named("ELMo, both directions").model()
    rows = Batch.of(torch.arange(5, 25).view(2, 10))
    backbone = ELMo(replace(model.backbone.config, both_remember=True)).double().eval()
    backbone.load_state_dict(model.backbone.state_dict())
    model.backbone = backbone
    objective = BothDirections(carry=True)
    first = objective(model, rows, chance(rows))
    goes_on = replace(rows, fresh=torch.zeros(2, dtype=torch.bool))
    second = objective(model, goes_on, chance(rows), first.memory)
    assert not torch.allclose(first.loss, second.loss)
    again = objective(model, rows, chance(rows), first.memory)
    assert torch.allclose(first.loss, again.loss)


def check_one_norm_for_a_batch() -> None:
    """Real numbers 1, 3 and 5, 7: mean 4, variance 5; the padding's 100 does not count."""
    layer = torch.tensor([[[1.0, 3.0], [5.0, 7.0]], [[100.0, 100.0], [100.0, 100.0]]]).double()
    real = torch.tensor([[True, True], [False, False]])
    mix = WeightedSum(1, normalise="batch").double()
    found = mix([layer], real)
    expected = torch.tensor([[-3.0, -1.0], [1.0, 3.0]]).double() / 5**0.5
    assert torch.allclose(found[0], expected)
    # Each position by itself: 1, 3 and 5, 7 are the same.
    for each in (True, "position"):
        one = WeightedSum(1, normalise=each).double()([layer])
        assert torch.allclose(one[0, 0], one[0, 1])
    model = Mixed(elmo(), WeightedSum(3, normalise="batch").double())
    tokens = torch.arange(12).view(2, 6) % 8
    short = model(tokens, mask=real_keys(torch.arange(6) < torch.tensor([[6], [3]])))
    other = tokens.clone()
    other[1, 3:] = 7
    again = model(other, mask=real_keys(torch.arange(6) < torch.tensor([[6], [3]])))
    assert torch.allclose(short.hidden[0], again.hidden[0])


def test_one_norm_for_a_batch() -> None:
    check_one_norm_for_a_batch()
    with pytest.raises(ValueError, match="normalise is 'rows'"):
        WeightedSum(2, normalise="rows")


# Sampling: GPT-2's src/sample.py, top_p_logits


def check_top_p_within() -> None:
    """Of 8, 4, 3 and 1 sixteenths, two rows in another order: the most that do not exceed p."""
    shares = torch.tensor([[8, 4, 3, 1], [1, 3, 8, 4]]).double() / 16
    for p, within, reached in (
        (0.3, {8}, {8}),
        (0.51, {8}, {8, 4}),
        (0.74, {8}, {8, 4}),
        (0.76, {8, 4}, {8, 4, 3}),
        (0.95, {8, 4, 3}, {8, 4, 3, 1}),
        (1.0, {8, 4, 3, 1}, {8, 4, 3, 1}),
    ):
        for is_within, expected in ((True, within), (False, reached)):
            found = nucleus(shares.log(), p, within=is_within)
            for row in range(2):
                words = (shares[row, found[row].isfinite()] * 16).round().long().tolist()
                assert set(words) == expected, (p, within)
    settings = Sampling(top_p=0.6, top_p_within=True)
    stages = dict(settings.stages(shares.log(), torch.zeros(2, 1).long(), torch.zeros(2)))
    assert stages["nucleus"].isfinite().sum(dim=1).tolist() == [1, 1]
    # With more words than the faster version looks at.
    many = torch.full((1, 300), 1e-4).log()
    many[0, :2] = torch.tensor([0.6, 0.37]).log()
    with fast.enable():
        assert int(nucleus(many, 0.9, within=True).isfinite().sum()) == 1
        assert int(nucleus(many, 0.9).isfinite().sum()) == 2


def test_top_p_within() -> None:
    check_top_p_within()


# Rates: GPT's opt.py, warmup_linear and warmup_cosine; BERT's optimization.py, create_optimizer


def check_decay_from_the_start() -> None:
    """Ten steps, four of them warm-up: 1/4, 2/4, 3/4, 1, then 1 - t/10, or 1 - (t - 4)/6."""
    for decay_from, expected in (
        ("start", [0.25, 0.5, 0.75, 1.0, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        ("warmup", [0.25, 0.5, 0.75, 1.0, 1.0, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
    ):
        how = Plan(steps=10, warmup=4, schedule="linear", decay_from=decay_from)
        assert [how.share(step) for step in range(10)] == pytest.approx(expected)
    # Half of a cosine from 1 to 0.1, in its middle.
    how = Plan(steps=10, warmup=4, schedule="cosine", decay_from="start")
    assert how.share(5) == pytest.approx(0.55)
    assert Plan(steps=10, warmup=4, schedule="cosine").share(7) == pytest.approx(0.55)
    assert Plan(steps=10, schedule="linear", decay_from="start").share(0) == 1.0


def test_decay_from_the_start() -> None:
    check_decay_from_the_start()
    with pytest.raises(ValueError, match="choose linear or cosine"):
        Plan(steps=10, schedule="one_cycle", decay_from="start")


# GELU: at 1 it is 0.8413447 exactly, and 0.8411920 by the approximation


def check_gelu() -> None:
    for name, at_one in (("gelu", 0.8413447), ("gelu_tanh", 0.8411920)):
        for kind, config in ((GPT, GPTConfig), (BERT, BERTConfig), (XLNet, XLNetConfig)):
            backbone = kind(config(9, width=4, layers=1, heads=1, activation=name))
            found = backbone.blocks[0].mlp.activation(torch.ones(()))
            assert float(found) == pytest.approx(at_one, abs=2e-7), (kind, name)
    sizes = {"vocab_size": 9, "n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 8,
             "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "n_inner": None}  # fmt: skip
    for theirs, ours in (("gelu", "gelu"), ("gelu_new", "gelu_tanh")):
        config = read_config("gpt2", {**sizes, "activation_function": theirs}, "here")
        assert config.activation == ours
        assert write_config("gpt2", replace(config, inner=16))["activation_function"] == theirs
    # The first GPT says gelu and means the approximation.
    assert read_config("openai-gpt", {**sizes, "afn": "gelu"}, "here").activation == "gelu_tanh"
    torch.manual_seed(0)
    backbone = GPT(GPTConfig(V, width=8, layers=2, heads=2, context=20, activation="gelu"))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    for weights in model.parameters():
        weights.data.mul_(20.0)
    settings = Sampling(length=6, temperature=0.0)
    (steps,) = sample(model, [[7, 8, 9]], settings)
    text = [7, 8, 9]
    for word in steps[0].tokens:
        assert word == int(model(torch.tensor([text]))[0, -1].argmax())
        text.append(word)
    assert not decoding.can_decode(model)


def test_gelu() -> None:
    check_gelu()


# XLNet: run_classifier.py and modeling.py, summarize_sequence


def check_projection() -> None:
    model = named("XLNet, permuted").model()
    rows = torch.arange(5, 11)[None]
    last = model.backbone(rows).hidden[0, -1]
    plain, projected = (groups.classifier(model, 3, projection=p).eval() for p in (False, True))
    assert plain.head.pool is None
    assert torch.allclose(plain(rows)[0, -1], plain.head.labels(last))
    pool, labels = projected.head.pool, projected.head.labels
    between = (pool.weight @ last + pool.bias).tanh()
    assert torch.allclose(projected(rows)[0, -1], labels.weight @ between + labels.bias)


def test_projection() -> None:
    check_projection()


# BERT: create_pretraining_data.py, create_instances_from_document


def check_short_rows() -> None:
    """A row of 23 has 20 tokens of text, in sentences of two; a short one has room for 2 to 20."""
    words = [f"w{i}" for i in range(40)]
    stories = ["\n".join(f"{words[i]} ." for i in range(j, j + 12)) for j in range(20)]
    tokens = tokenize(from_documents(stories), Tokenizer.words(stories))
    sizes = {}
    for short in (0.0, 0.1, 1.0):
        batches = Pairs(tokens, 23, "order", batch=500, short=short, seed=1)
        rows = [batches.at(step) for step in range(8)]
        sizes[short] = torch.cat([r.real.sum(dim=1) - 3 for r in rows])
        begins = torch.cat([r.examples % 11 for r in rows])
        sizes[short] = sizes[short][begins == 0]
    assert bool((sizes[0.0] == 20).all())
    count = len(sizes[1.0])
    assert set(sizes[1.0].tolist()) == set(range(4, 21, 2))
    # Down to 4 when 2 to 5 were drawn, 20 when 20 was.
    for size, expected in ((4, 4 / 19), (6, 2 / 19), (20, 1 / 19)):
        assert near((sizes[1.0] == size).double().mean().item(), expected, count)
    below = (sizes[0.1] < 20).double().mean().item()
    assert near(below, 0.1 * 18 / 19, len(sizes[0.1]))


def test_short_rows() -> None:
    check_short_rows()
    for question in ("next", "order"):
        stories = ["a b . c d . e f . g h .", "i j . k l . m n . o p ."]
        tokens = tokenize(from_documents(stories), Tokenizer.words(stories))
        batch_ = Pairs(tokens, 12, question, batch=6, short=0.5).at(0)
        assert bool((batch_.real.sum(dim=1) >= 5).all())
    with pytest.raises(ValueError, match="short is 2: give a share between 0 and 1"):
        Pairs(tokens, 12, "next", batch=6, short=2)
