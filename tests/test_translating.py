"""Translation and tagging: the objective, writing, what is best, and whose mistake it is."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.tasks import tagging, translating
from labkit.blocks import LanguageModel, States
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import NextWord
from labkit.masking import real_keys
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer import Transformer, TransformerConfig, teacher_forced
from labkit.objectives import Translation
from labkit.sampling import Sampling
from labkit.writing.beam import beam
from labkit.writing.translator import Conditional

WORLD = translating.translator()
PAIRS = translating.pairs("held_out", 60)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return translating.transformer(0, width=16, layers=1).eval()


# ---- the objective


def small() -> tuple[LanguageModel, Batch]:
    torch.manual_seed(0)
    backbone = Transformer(TransformerConfig(11, 8, 1, 2, 12, dropout=0.0))
    source = torch.tensor([[4, 5, 6], [7, 8, 0]])
    labels = torch.tensor([[9, 8, 7, 3], [10, 3, -1, -1]])
    batch = Batch.of(source, source > 0, labels=labels)
    return LanguageModel(backbone, NextWord(backbone.token)).eval(), batch


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_loss_is_smoothed_cross_entropy_after_the_right_words(share: float) -> None:
    model, batch = small()
    outcome = Translation(begin=2, smoothing=share)(model, batch, Chance(0, 0, batch.rows))
    given = torch.tensor([[2, 9, 8, 7], [2, 10, 3, 0]])
    mask = real_keys(batch.real)
    scores = model(given, source_BK=batch.tokens, source_mask=mask)
    wanted = batch.labels >= 0
    plain, smooth = (
        F.cross_entropy(scores[wanted], batch.labels[wanted], label_smoothing=each)
        for each in (0.0, share)
    )
    torch.testing.assert_close(outcome.loss, smooth)
    torch.testing.assert_close(outcome.metrics["words"], plain)
    right = (scores.argmax(dim=-1) == batch.labels)[wanted].float().mean()
    torch.testing.assert_close(outcome.metrics["words right"], right)
    assert outcome.count == 6


def test_parts_of_a_batch_have_the_loss_of_the_whole() -> None:
    model, batch = small()
    objective = Translation(begin=2, smoothing=0.1)
    whole = objective(model, batch, Chance(0, 0, batch.rows))
    parts = [objective.targets(p, Chance(0, 0, p.rows)) for p in batch.micro(2)]
    counts = {name: sum(p.counts[name] for p in parts) for name in parts[0].counts}
    loss = sum(objective.loss(model, part).over(counts) for part in parts)
    torch.testing.assert_close(loss, whole.loss)


def test_a_word_of_the_padding_changes_nothing() -> None:
    model, batch = small()
    objective, chance = Translation(begin=2), Chance(0, 0, batch.rows)
    before = objective(model, batch, chance).loss
    batch.tokens[1, 2] = 9
    assert objective(model, batch, chance).loss == before


def test_the_answer_is_not_read_by_the_position_that_predicts_it() -> None:
    model, batch = small()
    objective = Translation(begin=2)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    states, _ = objective.forward(model, targets)
    batch.labels[0, 2] = 5
    other, _ = objective.forward(model, objective.targets(batch, Chance(0, 0, batch.rows)))
    moved = (states.hidden - other.hidden).abs().amax(dim=-1)[0] > 1e-5  # not rounding, of float32
    assert moved.tolist() == [False, False, False, True]


def test_labels_and_smoothing_are_checked() -> None:
    _, batch = small()
    with pytest.raises(ValueError, match=r"give the words of each target, \[B, T\]"):
        Translation(begin=2).targets(Batch.of(batch.tokens), Chance(0, 0, batch.rows))
    with pytest.raises(ValueError, match="give a share below 1"):
        Translation(begin=2, smoothing=1.0)


def test_a_model_without_a_head_cannot_translate() -> None:
    model, batch = small()
    with pytest.raises(ValueError, match="a bare Transformer: put a head on it"):
        Translation(begin=2)(model.backbone, batch, Chance(0, 0, batch.rows))


# ---- batches and pairs


def test_no_sentence_is_in_both_splits() -> None:
    train = {tuple(pair.source) for pair in translating.pairs("train", 1_500)}
    held_out = {tuple(pair.source) for pair in translating.pairs("held_out", 150)}
    assert not train & held_out
    assert len(translating.pairs("held_out", 7, seed=3)) == 7
    assert translating.pairs("held_out", 7, seed=3) == translating.pairs("held_out", 7, seed=3)


def test_batches_hold_both_sentences_and_their_ends() -> None:
    [batch] = translating.pair_batches(PAIRS, batch=60).once()
    tokenizer = translating.tokenizer()
    for row, pair in enumerate(PAIRS):
        *source, last = batch.tokens[row][batch.real[row]].tolist()
        assert (tokenizer.pieces(source), last) == (pair.source, translating.end())
        *target, last = batch.labels[row][batch.labels[row] >= 0].tolist()
        assert (tokenizer.pieces(target), last) == (pair.target, translating.end())
    first = next(translating.pair_batches(PAIRS, batch=4).once())
    assert (first.labels >= 0).any(dim=0).all()
    assert first.real.any(dim=0).all()


def test_every_word_of_both_languages_is_a_token() -> None:
    unknown = translating.tokenizer().vocabulary.unk
    for pair in translating.translator().pairs(1_500, seed=9):
        assert unknown not in translating.numbers([*pair.source, *pair.target])


# ---- writing


def test_greedy_is_a_beam_of_one_and_both_obey_the_model(model: LanguageModel) -> None:
    sources = [pair.source for pair in PAIRS[:6]]
    together = translating.greedy(model, sources, length=20)
    for source, words in zip(sources, together, strict=True):
        assert translating.greedy(model, [source], length=20) == [words]
        assert translating.searched(model, source, beams=1)[0] == words
    forced = translating.greedy(model, sources[:1], begins=["ro", "hund"], length=5)[0]
    assert forced[:2] == ["ro", "hund"]


class Teller(nn.Module):
    """A translator that knows the exact distribution, or what `changed` makes of it."""

    def __init__(self, changed: Any = lambda known: known) -> None:
        super().__init__()
        self.backbone, self.head = Knowing(changed), nn.Identity()
        self.weight = nn.Parameter(torch.zeros(1))


class Knowing(nn.Module):
    def __init__(self, changed: Any) -> None:
        super().__init__()
        self.changed = changed

    def forward(self, given_BT: Tensor, *, source_BK: Tensor, source_mask: Any = None) -> States:
        scores = torch.full((*given_BT.shape, len(translating.tokenizer())), -50.0)
        for row, source in enumerate(source_BK.tolist()):
            words = translating.spelled(source)
            known = self.changed(WORLD.translations(words))
            before = translating.tokenizer().pieces([t for t in given_BT[row].tolist()[1:] if t])
            for t in range(given_BT.shape[1]):
                for word, p in translating.next_word(words, before[:t], known).items():
                    token = translating.numbers([word])[0] if word else translating.end()
                    scores[row, t, token] = math.log(max(p, 1e-20))
        return States((scores,))


def test_the_exact_translator_has_the_exact_probabilities_and_scores() -> None:
    some = PAIRS[:12]
    exact = [WORLD.log_probability(*pair) for pair in some]
    assert translating.log_probabilities(Teller(), some) == pytest.approx(exact, abs=1e-4)
    written = [WORLD.best(pair.source) for pair in some]
    best = translating.best_of(some)
    scores = translating.judged(Teller(), some, written)
    assert tuple(scores) == pytest.approx(tuple(best), abs=1e-4)
    worse = translating.judged(Teller(), some, [pair.target[::-1] for pair in some])
    assert worse.exact < best.exact
    assert worse.bleu < best.bleu


def test_next_words_multiply_to_the_probability_of_the_sentence() -> None:
    for pair in PAIRS[:10]:
        steps = translating.next_words(*pair)
        product = math.prod(p[w] for p, w in zip(steps, [*pair.target, ""], strict=True))
        assert product == pytest.approx(math.exp(WORLD.log_probability(*pair)))
        assert all(sum(p.values()) == pytest.approx(1) for p in steps)


def test_the_best_loss_is_the_entropy_on_average() -> None:
    many = translating.pairs("held_out", 500)
    words = sum(len(pair.target) + 1 for pair in many)
    entropy = sum(WORLD.entropy(pair.source) for pair in many) / words
    assert translating.floor(many) == pytest.approx(entropy, abs=0.012)


def test_best_tokens_of_joined_sentences_have_one_end() -> None:
    two = translating.joined(PAIRS[:4], 2)
    assert [p.source for p in two] == [
        PAIRS[0].source + PAIRS[1].source,
        PAIRS[2].source + PAIRS[3].source,
    ]
    single, both = translating.best_tokens(PAIRS[:4]), translating.best_tokens(PAIRS[:4], 2)
    words = sum(len(pair.target) for pair in PAIRS[:4])
    assert single * (words + 4) - both * (words + 2) == pytest.approx(2)


# ---- whose mistake


def sure_of(words: list[str]) -> Any:
    return lambda known: {w: 0.1 * p for w, p in known.items()} | {tuple(words): 0.9}


def test_an_error_is_the_search_s_or_the_model_s() -> None:
    pair = next(p for p in PAIRS if len(set(WORLD.translations(p.source).values())) > 1)
    *_, worst = (list(words) for words in WORLD.translations(pair.source))
    assert worst not in translating.likeliest(pair.source)
    [found] = translating.errors(Teller(), [pair.source], [worst])
    assert found.searching
    assert found.best in translating.likeliest(pair.source)
    [found] = translating.errors(Teller(sure_of(worst)), [pair.source], [worst])
    assert not found.searching
    best = translating.likeliest(pair.source)
    assert translating.errors(Teller(), [pair.source] * len(best), best) == []


def test_possible_after_right_words() -> None:
    some = PAIRS[:8]
    assert all(translating.possible_after_right_words(Teller(), some))
    odd = Teller(lambda known: {("ro", "ro"): 0.9, **{w: 0.1 * p for w, p in known.items()}})
    assert not any(translating.possible_after_right_words(odd, some))


def test_bleu_is_that_of_the_written_words_against_the_references() -> None:
    pytest.importorskip("sacrebleu")
    wanted = [["a", "b", "c", "d", "e"], ["f", "g", "h", "i"]]
    assert translating.bleu(wanted, wanted) == pytest.approx(100)
    assert translating.bleu([w[::-1] for w in wanted], wanted) < 30
    # A short text is punished for its brevity, a long one for its words: the sides differ.
    short = [["a", "b", "c", "d"], ["f", "g", "h", "i"]]
    assert translating.bleu(short, wanted) == pytest.approx(100 * math.exp(1 - 9 / 8))
    assert translating.bleu(short, wanted) != pytest.approx(translating.bleu(wanted, short))


# ---- alignment


def test_cross_attention_is_that_of_the_decoder(model: LanguageModel) -> None:
    check_cross_attention(model)


def check_cross_attention(model: LanguageModel) -> None:
    pair = PAIRS[0]
    found = translating.cross_attention(model, *pair)
    assert found.shape == (1, 4, len(pair.target) + 1, len(pair.source) + 1)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(found.shape[:-1]))
    block = model.backbone.blocks[0]
    read = model.backbone.encode(torch.tensor([translating.numbers(pair.source)])).hidden
    given = teacher_forced(torch.tensor([translating.numbers(pair.target)]), translating.begin())
    before = model.backbone(given, encoded_BKD=read).layers[0]
    y, _ = block.self_attention(before, causal=True)
    x = block.self_attention_norm(before + y)
    weight, bias = block.cross_attention.query_key_value.weight, None
    q, k, _ = weight.chunk(3)
    bias = block.cross_attention.query_key_value.bias.chunk(3)
    q = (x @ q.T + bias[0]).unflatten(-1, (4, -1)).transpose(1, 2)
    k = (read @ k.T + bias[1]).unflatten(-1, (4, -1)).transpose(1, 2)
    torch.testing.assert_close((q @ k.transpose(2, 3) / 2).softmax(dim=-1), found)


def test_aligned_asks_for_the_largest_weight_where_a_word_has_a_source() -> None:
    true = np.array([[1.0, 0, 0], [0, 0, 0], [0, 0.5, 0.5], [0, 0, 1]])
    looks = np.array([[0.9, 0.1, 0, 5], [1, 0, 0, 0], [0, 0.4, 0.6, 0], [1, 0, 0, 0], [9, 9, 9, 9]])
    assert translating.aligned(looks, true) == [True, True, False]


# ---- tagging


def test_tags_and_their_exact_chances() -> None:
    words = ["yesterday", "the", "queen", "bought", "the", "key"]
    chances = tagging.tag_chances(words)
    assert [max(p, key=p.__getitem__) for p in chances] == [
        "adverb", "other", "noun", "verb", "other", "noun: door",
    ]  # fmt: skip
    for pair in PAIRS:
        for p in tagging.tag_chances(pair.source):
            assert sum(p.values()) == pytest.approx(1)
            assert set(p) <= set(tagging.tags())
    bank = tagging.tag_chances(["the", "bank", "of", "paris", "was", "big"])[1]
    assert bank == pytest.approx({"noun: money": 0.5, "noun: river": 0.5})


def test_drawn_tags_are_possible_and_their_floor_is_their_loss() -> None:
    sentences = [pair.source for pair in PAIRS]
    rows = tagging.tagged(sentences, batch=60)
    losses = []
    for words, labels in zip(sentences, rows.labels.tolist(), strict=True):
        for p, label in zip(tagging.tag_chances(words), labels, strict=False):
            losses.append(-math.log(p[tagging.tags()[label]]))
    assert tagging.tag_floor(rows, sentences) == pytest.approx(np.mean(losses))
    [batch] = rows.once()
    assert torch.equal(batch.real, batch.labels >= 0)


def test_the_accuracies_of_the_best_taggers_are_in_order() -> None:
    sentences = [pair.source for pair in PAIRS]
    alone, whole = tagging.word_alone(sentences), tagging.best_tags(sentences)
    assert 0.5 < alone[1] < whole[1] < 1
    assert alone[0] < whole[0]
    assert {"bank", "key", "the"} <= tagging.ambiguous()
    wrong = tagging.tag_accuracy(sentences, [["verb"] * len(words) for words in sentences])
    assert wrong[0] < 0.3


@pytest.mark.parametrize("kind", ["bag", "RNN", "RNN, both ways", "Transformer"])
def test_each_tagger_gives_a_score_to_each_tag_of_each_word(kind: str) -> None:
    tagger = tagging.tagger(kind, 0, width=16)
    scores = tagger(torch.tensor([translating.numbers(PAIRS[0].source)[:-1]]))
    assert scores.shape == (1, len(PAIRS[0].source), len(tagging.tags()))


# ---- models


def test_weights_go_to_a_model_built_by_hand_and_back() -> None:
    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(11, 8)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    torch.manual_seed(1)
    theirs, mine = small()[0], ByHand()
    translating.copy_weights(theirs, mine)
    stacked = theirs.backbone.encoder[0].attention.query_key_value
    assert torch.equal(mine.token.weight, theirs.backbone.token.weight)
    assert torch.equal(torch.cat([one.weight for one in mine.layers]), stacked.weight)
    assert torch.equal(torch.cat([one.bias for one in mine.layers]), stacked.bias)
    with torch.no_grad():
        mine.layers[1].weight.fill_(7)
    translating.copy_weights(theirs, mine, back=True)
    assert bool((stacked.weight[8:16] == 7).all())


def test_one_vector_is_all_that_the_recurrent_decoder_gets() -> None:
    model = translating.one_vector(0, width=12).eval()
    one, other = (torch.tensor([translating.numbers(p.source)]) for p in PAIRS[:2])
    given = torch.tensor([[translating.begin(), 9, 10]])
    vector = model.backbone.encode(one).hidden
    assert vector.shape == (1, 1, 12)
    direct = model.backbone(given, source_BK=one).hidden
    torch.testing.assert_close(model.backbone(given, encoded_BKD=vector).hidden, direct)
    assert not torch.allclose(model.backbone(given, source_BK=other).hidden, direct)
    # Padding is not read, and word by word is all at once.
    wide = torch.cat([one, torch.zeros(1, 2, dtype=torch.long)], dim=1)
    real = (torch.arange(wide.shape[1]) < one.shape[1])[None]
    mask = real_keys(real)
    padded = model.backbone(given, source_BK=wide, source_mask=mask).hidden
    torch.testing.assert_close(padded, direct)
    memory: Any = ()
    steps = []
    for word in given.split(1, dim=1):
        states = model.backbone(word, encoded_BKD=vector, memory=memory)
        memory = states.memory
        steps.append(states.hidden)
    torch.testing.assert_close(torch.cat(steps, dim=1), direct)


def test_a_recurrent_decoder_with_attention_is_its_formula() -> None:
    model = translating.with_attention(0, width=12).eval()
    backbone: Any = model.backbone
    [one] = [torch.tensor([translating.numbers(p.source)]) for p in PAIRS[:1]]
    given = torch.tensor([[translating.begin(), 9, 10]])
    found = backbone(given, source_BK=one).hidden[0]
    states, last = backbone.encoder(backbone.token(one))
    hidden, _ = backbone.decoder(backbone.token(given), last)
    for t in range(3):
        weights = (states[0] @ hidden[0, t] / 12**0.5).softmax(dim=0)
        both = torch.cat([weights @ states[0], hidden[0, t]])
        torch.testing.assert_close(found[t], (backbone.mix.weight @ both).tanh())
    # Padding is neither read nor attended to, and word by word is all at once.
    wide = torch.cat([one, torch.zeros(1, 2, dtype=torch.long)], dim=1)
    mask = real_keys((torch.arange(wide.shape[1]) < one.shape[1])[None])
    padded = backbone(given, source_BK=wide, source_mask=mask).hidden[0]
    torch.testing.assert_close(padded, found)
    memory: Any = ()
    encoded, steps = backbone.encode(wide, mask=mask).hidden, []
    for word in given.split(1, dim=1):
        states = backbone(word, encoded_BKD=encoded, source_mask=mask, memory=memory)
        memory = states.memory
        steps.append(states.hidden[0])
    torch.testing.assert_close(torch.cat(steps), found)


def test_a_source_is_read_without_dropout() -> None:
    """Also when the model comes straight from training."""
    torch.manual_seed(3)
    backbone = Transformer(TransformerConfig(6, 8, 1, 2, 12, dropout=0.5))
    model, source = LanguageModel(backbone, NextWord(backbone.token)), torch.tensor([[4, 2, 5]])
    read = [Conditional(model.train(mode), source).backbone.encoded_1KD for mode in (True, False)]
    assert torch.equal(*read)
    assert not read[0].requires_grad


def test_what_was_read_goes_with_the_translator_into_another_precision() -> None:
    torch.manual_seed(3)
    backbone = Transformer(TransformerConfig(6, 8, 1, 2, 12, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    one = Conditional(model, torch.tensor([[4, 2, 5]]))
    assert not {name for name in one.state_dict() if "encoded" in name}
    tokens = torch.tensor([[1, 2]])
    usual = one(tokens)
    torch.testing.assert_close(one.double()(tokens).float(), usual)


def test_what_reads_no_source_is_no_translator() -> None:
    backbone = Transformer(TransformerConfig(6, 8, 1, 2, 12))
    model, source = LanguageModel(backbone, NextWord(backbone.token)), torch.tensor([[4, 2, 5]])
    gpt = GPT(GPTConfig(6, 8, 1, 2, 12))
    reads_none = LanguageModel(gpt, NextWord(gpt.token))
    for given, read, says in (
        (reads_none, source, "GPT reads no source: give an encoder-decoder"),
        (backbone, source, "a bare Transformer: put a head on it"),
        (model, source.repeat(2, 1), r"one source: give its tokens as a tensor \[1, K\]"),
        (model, [4, 2, 5], r"one source: give its tokens as a tensor \[1, K\]"),
    ):
        with pytest.raises(ValueError, match=says):
            Conditional(given, read)


def test_a_wide_beam_finds_what_enumeration_finds() -> None:
    torch.manual_seed(3)
    backbone = Transformer(TransformerConfig(6, 8, 1, 2, 12, dropout=0.0))
    model = LanguageModel(backbone, NextWord(backbone.token)).eval()
    source = torch.tensor([[4, 2, 5]])
    found = beam(
        Conditional(model, source), [1], Sampling(length=3, stop=(3,)), beams=36, length_penalty=0.0
    )[0]
    logs = {}
    for length in (1, 2, 3):
        for words in itertools.product(range(6), repeat=length):
            if 3 in words[:-1] or (length < 3 and words[-1] != 3):
                continue
            given = torch.tensor([[1, *words[:-1]]])
            p = model(given, source_BK=source)[0].detach().log_softmax(dim=-1)
            logs[words] = float(p[torch.arange(length), list(words)].sum())
    best = max(logs, key=logs.__getitem__)
    assert tuple(found.tokens) == best
    assert found.log_probability == pytest.approx(logs[best], abs=1e-4)
