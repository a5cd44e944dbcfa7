"""Transfer: which layers learn, how fast, and what stays bit for bit as it was."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from labkit import weights
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import MaskedWord, NextWord, Pooled
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import AdaptiveWord, TransformerXL, TransformerXLConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import Labels, Similarity, SpanEnds
from labkit.plan import Plan
from labkit.trainer import Trainer, evaluate
from labkit.transfer import (
    classifier,
    discriminative,
    features_only,
    labels_of,
    language_model_of,
    layer_groups,
    span_finder,
    tagger,
    unfreeze_from_top,
)
from labkit.transfer.finetuning import Tuning, fine_tune, one_way
from labkit.transfer.mixed import Mixed

V = 20


def gpt() -> LanguageModel:
    backbone = GPT(GPTConfig(V, width=16, layers=3, heads=2, context=32, dropout=0.0))
    return LanguageModel(backbone, NextWord(backbone.token))


def bert(**changed) -> LanguageModel:
    sizes = {"width": 16, "layers": 3, "heads": 2, "context": 32, "dropout": 0.0, "pooler": True}
    backbone = BERT(BERTConfig(V, **(sizes | changed)))
    return LanguageModel(backbone, MaskedWord(backbone.token, 16))


def awd_lstm() -> LanguageModel:
    backbone = AWDLSTM(AWDLSTMConfig(V, width=12, inner=16, layers=3))
    return LanguageModel(backbone, NextWord(backbone.token))


def xlnet() -> LanguageModel:
    backbone = XLNet(XLNetConfig(V, width=16, layers=2, heads=2, dropout=0.0))
    return LanguageModel(backbone, NextWord(backbone.token))


def transformer_xl() -> LanguageModel:
    backbone = TransformerXL(TransformerXLConfig(V, width=16, layers=2, heads=2, dropout=0.0))
    return LanguageModel(backbone, NextWord(backbone.token))


MODELS = {
    "gpt": (gpt, 3),
    "bert": (bert, 3),
    "albert": (lambda: bert(shared=True, embedding=8), 1),
    "awd-lstm": (awd_lstm, 3),
    "xlnet": (xlnet, 2),
    "transformer-xl": (transformer_xl, 2),
}


def elmo() -> LanguageModel:
    sizes = ELMoConfig(V, kernels=(), width=8, inner=12)
    return LanguageModel(ELMo(sizes), NextWord(nn.Embedding(V, 8)))


def seeded(make) -> nn.Module:
    torch.manual_seed(0)
    return make()


class Task:
    """Which half of the vocabulary the words are of: batches by number."""

    def __init__(self, rows: int = 16, seed: int = 0) -> None:
        self.rows, self.seed = rows, seed

    def at(self, step: int) -> Batch:
        generator = torch.Generator().manual_seed(1000 * self.seed + step)
        labels = torch.randint(0, 2, (self.rows,), generator=generator)
        words = torch.randint(0, V // 2, (self.rows, 6), generator=generator)
        return Batch.of(words + labels[:, None] * (V // 2), labels=labels)


PLAN = Plan(steps=4, rate=1e-2, precision="float32", decay=0.0, device="cpu")


# ---- layers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_groups_hold_every_parameter_once_from_the_bottom_up(name):
    make, blocks = MODELS[name]
    model = classifier(seeded(make), 2)
    groups = layer_groups(model)
    assert len(groups) == blocks + 2
    ids = [id(p) for group in groups for p in group]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert any(p is model.backbone.token.weight for p in groups[0])
    for block, group in zip(model.backbone.blocks, groups[1:], strict=False):
        assert {id(p) for p in block.parameters()} == {id(p) for p in group}
    assert {id(p) for p in model.head.parameters()} <= {id(p) for p in groups[-1]}


def test_tied_words_belong_to_the_embeddings():
    model = seeded(gpt)
    assert any(p is model.head.words.weight for p in layer_groups(model)[0])
    top = layer_groups(model)[-1]
    assert {id(p) for p in top} == {id(p) for p in model.backbone.norm.parameters()}


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize("name", ["gpt", "bert", "awd-lstm"])
def test_only_the_highest_layers_learn(name, layers):
    """Trained for some steps, frozen layers are the same bits, the others are not."""
    model = classifier(seeded(MODELS[name][0]), 2)
    unfreeze_from_top(model, layers)
    before = [[p.clone() for p in group] for group in layer_groups(model)]
    if layers:
        for _ in Trainer(model, labels_of(model), Task(), PLAN).run():
            pass
    from_top = zip(reversed(layer_groups(model)), reversed(before), strict=True)
    for height, (group, old) in enumerate(from_top):
        same = [torch.equal(p, q) for p, q in zip(group, old, strict=True)]
        assert all(same) if height >= layers else not all(same), height


@pytest.mark.parametrize("name", ["gpt", "bert", "awd-lstm"])
def test_muon_rests_while_its_layers_are_frozen(name):
    """Only the head learns at first, and Muon has no matrix of it."""
    model = classifier(seeded(MODELS[name][0]), 2)
    before = [p.clone() for group in layer_groups(model)[1:-1] for p in group]
    plan = replace(PLAN, optimizer="muon", steps=2)
    fine_tune(model, labels_of(model), Task(), Tuning(plan=plan, unfreeze_every=2))
    after = [p for group in layer_groups(model)[1:-1] for p in group]
    assert all(torch.equal(p, q) for p, q in zip(after, before, strict=True))
    fine_tune(model, labels_of(model), Task(), Tuning(plan=plan))
    assert not all(torch.equal(p, q) for p, q in zip(after, before, strict=True))


def test_bert_with_three_fine_tuned_layers():
    """The lectures' `n_fine_tune_layers=3`: three blocks and the head."""
    backbone = BERT(BERTConfig(V, width=16, layers=6, heads=2, context=32, pooler=True))
    model = classifier(backbone, 2)
    unfreeze_from_top(model, 1 + 3)
    learning = [any(p.requires_grad for p in block.parameters()) for block in backbone.blocks]
    assert learning == [False, False, False, True, True, True]


@pytest.mark.parametrize("name", MODELS)
def test_rates_fall_by_the_factor_from_layer_to_layer(name):
    model = classifier(seeded(MODELS[name][0]), 2)
    factors = [factor for _, factor in discriminative(model, 2.6)]
    assert factors[-1] == 1
    for lower, higher in pairwise(factors):
        assert higher / lower == pytest.approx(2.6)


def test_a_slower_layer_moves_less_by_just_its_factor():
    """With plain SGD a step is rate x gradient: the moves show the factors themselves."""
    plan = replace(PLAN, steps=1, optimizer="sgd", clip=None, schedule="constant", warmup=0)
    model = classifier(seeded(gpt), 2, dropout=0.0)
    moved = []
    for factor in (1.0, 2.6):
        trained = copy.deepcopy(model)
        for _ in Trainer(trained, labels_of(trained), Task(), plan,
                         groups=discriminative(trained, factor)).run():  # fmt: skip
            pass
        pairs = zip(layer_groups(trained), layer_groups(model), strict=True)
        moved.append(
            [sum((p - q).norm().item() for p, q in zip(a, b, strict=True)) for a, b in pairs]
        )
    for height, (same, slower) in enumerate(zip(*map(reversed, moved), strict=True)):
        assert same / slower == pytest.approx(2.6**height, rel=1e-3)


def test_gradual_unfreezing_reaches_one_layer_more_each_time():
    model = classifier(seeded(gpt), 2, dropout=0.0)
    before = [[p.clone() for p in group] for group in layer_groups(model)]
    tuning = Tuning(plan=replace(PLAN, steps=4), unfreeze_every=2)
    fine_tune(model, labels_of(model), Task(), tuning)
    changed = [
        not all(torch.equal(p, q) for p, q in zip(group, old, strict=True))
        for group, old in zip(layer_groups(model), before, strict=True)
    ]
    assert changed == [False, False, False, True, True]
    assert all(p.requires_grad for p in model.parameters())


def test_features_only_trains_the_mix_and_the_head():
    torch.manual_seed(0)
    kernels = ((1, 4), (2, 4))
    elmo = ELMo(ELMoConfig(V, longest=6, letter_width=4, kernels=kernels, width=8, inner=12))
    model = classifier(elmo, 2)
    assert isinstance(model.backbone, Mixed)
    features_only(model)
    learning = {n.split(".")[0:2][-1] for n, p in model.named_parameters() if p.requires_grad}
    assert learning == {"mix", "inner", "labels"}


# ---- heads and inputs --------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_family_learns_a_task_under_its_new_head(name):
    model = classifier(seeded(MODELS[name][0]), 2, dropout=0.0)
    plan = Plan(steps=60, rate=1e-2, precision="float32")
    losses = [float(report.loss) for report in Trainer(model, labels_of(model), Task(), plan).run()]
    assert losses[-1] < 0.5 * losses[0]
    assert isinstance(model.head, Pooled) == (name == "awd-lstm")


def test_berts_pooler_goes_into_the_head_and_back():
    model = seeded(bert)
    built = classifier(model, 3)
    assert built.head.pool is model.backbone.pooler
    again = language_model_of(built, model)
    tokens = torch.randint(0, V, (2, 5))
    assert torch.equal(again(tokens), model(tokens))


def test_a_language_model_of_a_classifier_has_its_own_words() -> None:
    """The classifier is a copy whose words have learned: a tied head follows them."""
    model = seeded(gpt)
    built = classifier(copy.deepcopy(model), 2)
    with torch.no_grad():
        built.backbone.token.weight.mul_(2)
    again = language_model_of(built, model)
    assert again.head.words.weight is built.backbone.token.weight
    assert model.head.words.weight is model.backbone.token.weight
    tokens = torch.randint(0, V, (2, 5))
    hidden = built.backbone(tokens).hidden
    assert torch.equal(again(tokens), hidden @ built.backbone.token.weight.T)


def test_an_adaptive_softmax_has_the_words_of_the_classifier_too() -> None:
    sizes = TransformerXLConfig(V, width=8, layers=1, heads=2, context=8, memory=0, cutoffs=(4, 7),
                                shrink=2)  # fmt: skip
    backbone = TransformerXL(sizes)
    model = LanguageModel(backbone, AdaptiveWord(backbone.token))
    built = classifier(copy.deepcopy(model), 2)
    again = language_model_of(built, model)
    learned = {id(p) for p in built.backbone.token.parameters()}
    shared = {name for name, p in again.head.named_parameters() if id(p) in learned}
    assert shared == {"vectors.0", "vectors.1", "vectors.2", "down.1", "down.2"}
    assert again.head.rare is not model.head.rare


def test_the_language_model_of_an_elmo_classifier_is_below_the_mix() -> None:
    model = seeded(elmo).eval()
    again = language_model_of(classifier(model, 2), model)
    tokens = torch.randint(0, V, (2, 5))
    assert torch.equal(again.backbone(tokens).hidden, model.backbone(tokens).hidden)


@pytest.mark.parametrize("task", [tagger, lambda model, _: span_finder(model)])
def test_elmos_layers_are_mixed_for_each_word_too(task, tmp_path) -> None:
    model = task(seeded(elmo), 2).eval()
    tokens = torch.randint(0, V, (2, 5))
    mixed = torch.stack(model.backbone.backbone(tokens).layers).mean(dim=0)
    torch.testing.assert_close(model(tokens), model.head(mixed))
    features_only(model)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"backbone.mix.weights", "backbone.mix.scale"} < learning
    weights.save(model, tmp_path)
    torch.testing.assert_close(weights.load(tmp_path).eval()(tokens), model(tokens))


@pytest.mark.parametrize("make", [elmo, awd_lstm, bert])
def test_a_second_task_has_the_head_of_its_family_too(make) -> None:
    first = classifier(seeded(make), 2)
    second = classifier(first, 2)
    assert str(second) == str(first)
    assert second.head is not first.head


@pytest.mark.parametrize("task", [classifier, tagger, lambda model, _: span_finder(model)])
def test_a_second_task_has_a_mix_of_its_own(task) -> None:
    first = classifier(seeded(elmo), 2)
    second = task(first, 2)
    assert second.backbone.backbone is first.backbone.backbone
    assert second.backbone.mix is not first.backbone.mix


def test_elmos_classifier_drops_what_it_is_told_to() -> None:
    assert classifier(seeded(elmo), 2).head.dropout.p == 0
    assert classifier(seeded(elmo), 2, dropout=0.4).head.dropout.p == 0.4
    assert classifier(seeded(gpt), 2).head.dropout.p == 0.1


@pytest.mark.parametrize("make", [elmo, gpt])
@pytest.mark.parametrize("task", [classifier, tagger, lambda model, _: span_finder(model)])
def test_all_that_is_new_is_where_the_backbone_is_and_in_its_precision(make, task):
    model = task(make().to("meta", torch.float64), 2)
    assert {(p.device.type, p.dtype) for p in model.parameters()} == {("meta", torch.float64)}


def test_tags_and_spans_have_a_head_for_each_place():
    tokens = torch.randint(0, V, (2, 7))
    assert tagger(seeded(bert), 5)(tokens).shape == (2, 7, 5)
    assert span_finder(seeded(bert))(tokens).shape == (2, 7, 2)


def test_a_tagger_is_asked_at_each_word_also_after_it_was_saved(tmp_path):
    weights.save(tagger(seeded(gpt), 3), tmp_path)
    tags, loaded = tagger(seeded(gpt), 3), weights.load(tmp_path)
    for model in (tags, loaded):
        assert labels_of(model).position == "each"
    assert labels_of(classifier(seeded(gpt), 3)).position == "last"
    with pytest.raises(ValueError, match=r"the head Span scores positions.* give SpanEnds"):
        labels_of(span_finder(seeded(gpt)))


def test_likeness_does_not_know_the_order():
    torch.manual_seed(0)
    model = classifier(seeded(gpt), 2, dropout=0.0).eval()
    tokens = torch.randint(0, V, (6, 5))
    labels = torch.tensor([0, 0, 1, 1, 0, 0])
    swapped = [1, 0, 3, 2, 5, 4]
    objective = Similarity(position="last")
    one = objective(model, Batch.of(tokens, labels=labels), Chance(0, 0, torch.arange(6)))
    two = objective(model, Batch.of(tokens[swapped], labels=labels), Chance(0, 0, torch.arange(6)))
    torch.testing.assert_close(one.loss, two.loss)
    assert one.count == 3
    hidden = model.backbone(tokens).hidden[:, -1]
    scores = model.head(hidden[0::2] + hidden[1::2])
    expected = nn.functional.cross_entropy(scores, labels[::2])
    torch.testing.assert_close(one.loss, expected)


def test_spans_are_asked_at_both_ends_among_real_places():
    model = span_finder(seeded(bert)).eval()
    tokens = torch.randint(0, V, (3, 6))
    real = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]]).bool()
    labels = torch.tensor([[1, 4], [0, 3], [-1, -1]])
    batch = Batch.of(tokens, real, labels=labels)
    outcome = SpanEnds()(model, batch, Chance(0, 0, batch.rows))
    expected = 0.0
    for row in (0, 1):
        length = int(real[row].sum())
        ends = model(tokens[row : row + 1, :length])[0].log_softmax(dim=0)
        expected -= (ends[labels[row, 0], 0] + ends[labels[row, 1], 1]) / 4
    torch.testing.assert_close(outcome.loss, expected)
    for wrong in ([[3, 1], [0, 3], [0, 0]], [[1, 4], [0, 4], [0, 0]]):
        with pytest.raises(ValueError, match="ends before it begins, or beyond"):
            SpanEnds()(model, Batch.of(tokens, real, labels=torch.tensor(wrong)), None)


# ---- bad input ---------------------------------------------------------------------------------


def test_bad_input_is_refused():
    model = classifier(seeded(gpt), 2)
    for layers in (-1, 1.5, "2"):
        with pytest.raises(ValueError, match=f"layers is {layers!r}: give a whole number"):
            unfreeze_from_top(model, layers)
    for factor in (0, math.inf, "2.6"):
        with pytest.raises(ValueError, match=f"factor is {factor!r}: give a finite number above 0"):
            discriminative(model, factor)
    plan = Plan(steps=1, rate=0.1)
    for given, message in (({"unfreeze_every": 0}, "unfreeze_every is 0"), ({"factor": -1}, "-1"),
                           ({"layers": 0}, "layers is 0: give a whole number from 1")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Tuning(plan=plan, **given)
    for labels in (0, 2.5, "2"):
        for make, family in ((classifier, gpt), (classifier, awd_lstm), (tagger, gpt)):
            with pytest.raises(ValueError, match=f"labels is {labels!r}: give a whole number"):
                make(seeded(family), labels)
    with pytest.raises(ValueError, match="labels: none"):
        Labels()(model, Batch.of(torch.zeros(2, 3, dtype=torch.long)), None)


def test_each_way_is_its_own_and_changes_neither_model():
    torch.manual_seed(1)
    model, fresh = gpt(), gpt()
    before = [copy.deepcopy(one.state_dict()) for one in (model, fresh)]
    losses = set()
    for way, start in (("frozen", model), ("fine-tuned", model), ("from scratch", fresh)):
        torch.manual_seed(2)
        built = one_way(start, way, Task(4), labels=2, plan=PLAN)
        losses.add(evaluate(built, labels_of(built), [Task(seed=5).at(0)]).loss)
    assert len(losses) == 3
    for one, old in zip((model, fresh), before, strict=True):
        assert all(torch.equal(tensor, old[name]) for name, tensor in one.state_dict().items())


@pytest.mark.parametrize("every", [None, 1])
def test_fine_tuning_of_the_last_layers_slows_each_and_reaches_no_other(every):
    plan = replace(PLAN, steps=6, optimizer="sgd", clip=None, schedule="constant", rate=0.1)
    moved = []
    for factor in (1.0, 4.0):
        model = classifier(seeded(gpt), 2, dropout=0.0)
        before = [[p.clone() for p in group] for group in layer_groups(model)]
        tuning = Tuning(plan=plan, layers=2, factor=factor, unfreeze_every=every)
        fine_tune(model, labels_of(model), Task(), tuning)
        pairs = zip(layer_groups(model), before, strict=True)
        moved.append(
            [sum((p - q).norm().item() for p, q in zip(*pair, strict=True)) for pair in pairs]
        )
    assert [move > 0 for move in moved[0]] == [False, False, False, True, True]
    assert moved[1][3] < 0.5 * moved[0][3]
