"""Predictions depend on what the objective allows, on all of it, and on nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import pytest
import torch
from pairings import (
    PAIRINGS,
    SMALL,
    VOCABULARY,
    D,
    Pairing,
    V,
    batch,
    chance,
    named,
    words_only,
)
from picture_of_leaks import picture
from torch import Tensor, nn

from labkit.alignment.preferences import DPO
from labkit.blocks import LanguageModel
from labkit.corpus import Batch
from labkit.heads import Label, NextWord, Pooled
from labkit.leaks import Dependence, allowed, trace
from labkit.models.gpt import GPT
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import (
    Both,
    BothDirections,
    Labels,
    MaskedToken,
    NextSentence,
    NextToken,
    Objective,
    Permutation,
    Predicted,
    Sum,
    Targets,
    Translation,
    base,
    memory,
    permutation,
    words,
)
from labkit.transfer import tagger


def segments(given: Batch, objective: Objective) -> list[Batch]:
    """Two rows; where memory is carried, a segment before them that the second row forgets."""
    if not getattr(objective, "carry", False):
        return [given[:2]]
    before = torch.where(given.tokens < 5, given.tokens, 5 + (given.tokens + 30) % (V - 5))
    fresh = torch.tensor([False, True, False, False])
    return [replace(given, tokens=before)[:2], replace(given, fresh=fresh)[:2]]


def traced(
    pairing: Pairing, changed: Callable[[nn.Module], object] = lambda model: None
) -> Dependence:
    """What the predictions of a pairing depend on, once `changed` has been done to the model."""
    objective, model = pairing.objective(), pairing.model()
    changed(model)
    return trace(model, objective, segments(pairing.batch(), objective))


@pytest.mark.parametrize("pairing", PAIRINGS, ids=lambda pairing: pairing.name)
def test_predictions_depend_on_all_that_is_allowed_and_on_nothing_else(pairing: Pairing):
    objective = pairing.objective()
    if isinstance(objective, Sum):
        with pytest.raises(ValueError, match="trace each of its parts"):
            traced(pairing)
        return
    found = traced(pairing)
    assert found.leaks == []
    assert found.predictions
    assert found.by_gradient.equal(found.positions_allowed)
    # Only words are exchanged, no special tokens, which say what may be hidden.
    tokens = [
        part.tokens[:, :w]
        for part, w in zip(segments(pairing.batch(), objective), found.widths, strict=True)
    ]
    ordinary = torch.cat(tokens, dim=1) >= 5
    assert (found.by_word & ordinary).equal(found.words_allowed & ordinary)


def test_a_model_is_in_the_mode_in_which_it_was_before():
    model = named("GPT, next word").model().train()
    trace(model, NextToken(), batch()[:1])
    assert all(module.training for module in model.modules())


def test_the_statistics_of_a_model_are_those_that_were_before():
    model = named("GPT, next word").model()
    normalise_over_the_batch(model)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert trace(model, NextToken(), batch()[:2]).leaks
    assert all(buffer.equal(before[name]) for name, buffer in model.named_buffers())
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["GPT, next word", "BERT, masked", "XLNet, permuted"])
def test_what_is_drawn_at_random_is_no_leak(name: str):
    """Noise that eval mode does not end, and dropout in training, which hides what is allowed."""

    def add_noise(model: nn.Module) -> None:
        add_to_states(torch.randn_like)(model)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.3

    found = traced(named(name), add_noise)
    assert found.leaks == []
    assert found.by_gradient.equal(found.positions_allowed)


def test_what_is_drawn_after_a_trace_is_what_would_have_been_drawn():
    model = named("GPT, next word").model()
    before = torch.get_rng_state()
    trace(model, NextToken(), batch()[:1])
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_model_is_traced_where_no_gradients_are_computed(off: Callable[[], Any]):
    model, given = named("GPT, next word").model(), batch()[:1]
    usual = trace(model, NextToken(), given)
    with off():
        assert trace(model, NextToken(), given).by_gradient.equal(usual.by_gradient)


def test_what_is_allowed_is_what_the_lecture_says():
    """Written out by hand for one row of three models."""
    given = batch()[:1]
    left = traced(named("GPT, next word")).words_allowed[:8, 0]
    assert left.equal(torch.ones(8, 8).tril().bool())
    everything = traced(named("BERT, masked"))
    objective = named("BERT, masked").objective()
    hidden = objective.choose(given, base.Chance(0, 0, given.rows))[0]
    rows = [n for n, (_, row, _) in enumerate(everything.predictions) if row == 0]
    assert everything.positions_allowed[rows, 0].all()
    # A word that was replaced is not shown; one that was chosen and kept is.
    seen = objective.targets(given, base.Chance(0, 0, given.rows)).inputs.tokens[0]
    assert (seen != given.tokens[0])[hidden].any()
    assert everything.words_allowed[rows, 0].equal((seen == given.tokens[0]).expand(len(rows), -1))
    permuted = traced(named("XLNet, all permuted"))
    order = (
        named("XLNet, all permuted").objective().targets(given, base.Chance(0, 0, given.rows)).order
    )
    for n, (_, row, position) in enumerate(permuted.predictions):
        if row == 0:
            assert permuted.words_allowed[n, 0].equal(order.rank[0] < order.rank[0, position])


@pytest.mark.parametrize("name", ["XLNet, all permuted", "XLNet, permuted, memory", "XLNet, spans"])
def test_no_order_leaks(name: str):
    pairing = named(name)
    for seed in range(4):
        objective = pairing.objective()
        found = trace(pairing.model(), objective, segments(pairing.batch(), objective), seed=seed)
        assert found.leaks == []
        assert found.by_gradient.equal(found.positions_allowed)


def test_memory_reaches_one_segment_further_with_each_layer():
    """One layer of Transformer-XL sees as far back as its memory; two see beyond."""
    for layers, reach in ((1, 2), (2, 4)):
        pairing = named("Transformer-XL, next word")
        model = pairing.model()
        model.backbone.memory_length = 2
        model.backbone.blocks = model.backbone.blocks[:layers]
        model.backbone.config = replace(model.backbone.config, layers=layers)
        tokens = 5 + torch.randperm(V - 5)[:12].view(1, 12)
        parts = tokens.split(3, dim=1)
        stream = [Batch.of(part, fresh=torch.tensor([i == 0])) for i, part in enumerate(parts)]
        found = trace(model, NextToken(carry=True), stream)
        assert found.leaks == []
        assert found.by_word.equal(found.words_allowed)
        # Two words of each segment are read, the last of which are the seventh and the eighth.
        assert found.words_allowed[0, 0].nonzero()[:, 0].tolist() == list(range(6 - reach, 7))


class AllRemembered(Permutation):
    """Remembers all of a row, also what is not reused."""

    keep = base.Continuing.keep


def traced_with_reuse(kind: type[Permutation], layers: int, memory: int) -> Dependence:
    """Three segments of eight words, of which the first four are remembered."""
    torch.manual_seed(0)
    backbone = XLNet(XLNetConfig(V, **(SMALL | {"layers": layers, "memory": memory})))
    model = LanguageModel(backbone, NextWord(backbone.token, bias=True)).double()
    parts = (5 + torch.randperm(V - 5)[:24]).view(3, 1, 8)
    stream = [Batch.of(part, fresh=torch.tensor([i == 0])) for i, part in enumerate(parts)]
    objective = kind(vocabulary=VOCABULARY, share=0.5, carry=True, reuse=4)
    return trace(model, objective, stream)


@pytest.mark.parametrize(
    ("layers", "memory", "reach"),
    [(1, 4, [*range(8, 12)]), (1, 6, [2, 3, *range(8, 12)]), (2, 8, [*range(4), *range(8, 12)])],
)
def test_memory_holds_the_first_part_of_each_segment_where_one_is_reused(
    layers: int, memory: int, reach: list[int]
):
    found = traced_with_reuse(Permutation, layers, memory)
    assert found.leaks == []
    assert found.by_word.equal(found.words_allowed)
    assert found.words_allowed[0, 0, :16].nonzero()[:, 0].tolist() == reach


def test_words_that_are_remembered_but_not_reused_are_a_leak():
    found = traced_with_reuse(AllRemembered, layers=2, memory=8)
    assert {(leak.segment, leak.from_position) for leak in found.leaks} == {
        (segment, position) for segment in range(2) for position in range(4, 8)
    }


def test_what_an_objective_within_another_remembers_is_allowed():
    backbone = named("Transformer-XL, next word").model().backbone
    parts = [batch(), batch()]
    objective = NextToken(carry=True)
    asked = [objective.targets(part, chance(part)) for part in parts]
    asked[1] = replace(asked[1], fresh=torch.zeros_like(asked[1].fresh))
    start = asked[0].inputs.tokens.shape[1]
    both = Both(parts=(objective, Labels(head="pair")))
    known = [allowed.from_memory(backbone, one, asked, start) for one in (objective, both)]
    assert known[0].any()
    assert known[0].equal(known[1])
    without = allowed.from_memory(backbone, NextToken(), asked, start)
    assert not without.any()


# Planted leaks


def add_to_states(mix: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], object]:
    """Add something to what comes out of the first layer."""

    def plant(model: nn.Module) -> object:
        def mixed(_: nn.Module, __: object, output: tuple[Tensor, object]) -> tuple[Tensor, object]:
            return output[0] + mix(output[0]), output[1]

        return model.backbone.blocks[0].register_forward_hook(mixed)

    return plant


def forget_nothing(kept, fresh):
    return recall_of(kept, torch.zeros_like(fresh)) if kept else recall_of(kept, fresh)


def hide_long_words_only(self, given, chance):
    return choose_of(self, given, chance) & (given.tokens % 2 == 0)


def queries_that_know_their_word(model: nn.Module) -> None:
    """The query stream starts from the words, as if it were content."""
    backbone, streams = model.backbone, model.backbone.two_streams

    def told(tokens_BT, asked_BN, **how):
        guess = backbone.guess_D
        del backbone.guess_D
        backbone.guess_D = backbone.token(tokens_BT.gather(1, asked_BN))
        found = streams(tokens_BT, asked_BN, **how)
        del backbone.guess_D
        backbone.guess_D = guess
        return found

    backbone.two_streams = told


class Normed(nn.BatchNorm1d):
    """Normalises by the statistics of all words of a batch, in training."""

    def forward(self, states_BTD: Tensor) -> Tensor:
        return super().forward(states_BTD.flatten(0, 1)).view_as(states_BTD)


def normalise_over_the_batch(model: nn.Module) -> None:
    """After the first layer, in a module that is a part of the model."""
    model.norm = Normed(D).double().eval()
    model.backbone.blocks[0].register_forward_hook(
        lambda _, __, output: (model.norm(output[0]), output[1])
    )


recall_of, choose_of = memory.recall, MaskedToken.choose
up_to = permutation.up_to

PLANTED = {
    "attention without its mask": (
        "GPT, next word",
        None,
        lambda: patch.object(GPT, "_mask_of", lambda *_: (None, False)),
    ),
    "queries that see their own word": (
        "XLNet, permuted",
        None,
        lambda: patch.object(permutation, "before", lambda order, past=0: up_to(order, past)),
    ),
    "queries that start from their own word": (
        "XLNet, permuted",
        queries_that_know_their_word,
        None,
    ),
    "content that sees later words": (
        "XLNet, all permuted",
        None,
        lambda: patch.object(
            permutation, "up_to", lambda order, past=0: torch.ones_like(up_to(order, past))
        ),
    ),
    "padding that is seen": (
        "BERT, masked",
        None,
        lambda: patch.object(base, "real_keys", lambda real: torch.ones_like(real)[:, None, None]),
    ),
    "words that were not hidden": (
        "BERT, masked",
        None,
        lambda: patch.object(words.hiding, "corrupt", lambda tokens, *_, **__: tokens.clone()),
    ),
    "a choice that depends on the word": (
        "BERT, masked",
        None,
        lambda: patch.object(MaskedToken, "choose", hide_long_words_only),
    ),
    "statistics over the batch": ("BERT, masked", add_to_states(lambda x: x.mean(0)), None),
    "statistics over the text": (
        "GPT, next word",
        add_to_states(lambda x: x.mean(1, keepdim=True)),
        None,
    ),
    "statistics over the batch in training": ("BERT, masked", normalise_over_the_batch, None),
    "statistics of later words in training": ("GPT, next word", normalise_over_the_batch, None),
    "states moved by one": ("GPT-1, next word", add_to_states(lambda x: x.roll(-1, 1)), None),
    "memory of another text": (
        "Transformer-XL, next word",
        None,
        lambda: patch.object(base, "recall", forget_nothing),
    ),
    "states of an LSTM kept for another text": (
        "AWD-LSTM, next word",
        None,
        lambda: patch.object(base, "recall", forget_nothing),
    ),
    "directions mixed up": (
        "ELMo, both directions",
        None,
        lambda: patch.object(words, "halves", lambda states: halves_of(states)[::-1]),
    ),
}
halves_of = words.halves


@pytest.mark.parametrize("name", PLANTED)
def test_planted_leaks_are_found(name: str):
    pairing, change, put = PLANTED[name]
    change = change or (lambda model: None)
    if put is None:
        found = traced(named(pairing), change)
    else:
        with put():
            found = traced(named(pairing), change)
    assert found.leaks
    assert "depends" in str(found.leaks[0])
    assert traced(named(pairing)).leaks == []


@dataclass(frozen=True, kw_only=True, eq=False)
class AfterNext(Objective):
    """Predict the word after the next one, as in docs/researcher.md, or forget to hide it."""

    causal: bool

    def targets(self, batch, chance):
        asked = Predicted.where(batch.real[:, :-2] & batch.real[:, 2:], batch.tokens[:, 2:])
        return Targets.of(batch, {"word": asked}, causal=self.causal)


@pytest.mark.parametrize("name", ["BERT, next word", "GPT, next word"])
def test_a_word_that_an_objective_forgot_to_hide_is_a_leak(name: str):
    model, given = named(name).model(), words_only()[:2]
    forgotten = trace(model, AfterNext(causal=False), given)
    if name.startswith("GPT"):
        assert not forgotten.leaks
    else:
        places = {(leak.position, leak.from_position) for leak in forgotten.leaks}
        assert places == {(n, n + 2) for _, _, n in forgotten.predictions}
        assert {leak.how for leak in forgotten.leaks} == {"gradient", "word"}
    assert not trace(model, AfterNext(causal=True), given).leaks


def test_a_tagger_reads_an_elmo_from_both_sides_and_an_id_of_a_word_is_no_word():
    tags = Batch.of(torch.arange(5, 13).view(2, 4), labels=torch.arange(5, 13).view(2, 4).roll(-1))
    for name in ("ELMo, both directions", "BERT, masked"):
        model = tagger(named(name).model(), V).double().eval()
        found = trace(model, Labels(position="each"), tags)
        assert not found.leaks
        assert all(found.by_word[n, row].all() for n, (_, row, _) in enumerate(found.predictions))


def test_words_that_chance_kept_are_no_leak():
    kept = MaskedToken(vocabulary=VOCABULARY, rate=0.5, shares=(0, 0, 1))
    assert not trace(named("BERT, masked").model(), kept, words_only()[:2]).leaks


def test_packed_documents_do_not_see_each_other():
    model, tokens = named("GPT, next word").model(), batch().tokens[:1]
    packed = Batch.of(tokens, documents=torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]]))
    assert trace(model, NextToken(), packed).leaks == []
    with patch.object(base, "same_segment", lambda ids: torch.ones(1, 1, 8, 8, dtype=torch.bool)):
        found = trace(model, NextToken(), packed)
    assert {(leak.position, leak.from_position) for leak in found.leaks} == {
        (position, before) for position in range(4, 8) for before in range(4)
    }


def test_a_query_that_may_see_nothing_sees_nothing():
    """The first word of a full order, where nothing is given, has nothing to go by."""
    pairing = named("XLNet, all permuted")
    tokens = batch().tokens[:1].masked_fill(batch().tokens[:1] < 5, 59)
    found = trace(pairing.model(), pairing.objective(), Batch.of(tokens))
    assert found.leaks == []
    assert found.by_gradient.sum(dim=(1, 2)).sort().values.tolist() == list(range(9))


def both_of(name: str) -> tuple[nn.Module, Both, Batch]:
    """Two objectives at once, a model with the heads of both, and its text."""
    hides = named("BERT, masked").objective()
    match name:
        case "pooled":
            model = named("GPT, next word").model()
            model.pair = Pooled(D, 2, inner=None)
            parts = (Labels(position="pooled", head="pair"), NextToken())
        case "choices":
            model = named("BERT, masked").model()
            model.pair = Label(D, 1)
            parts = (hides, Labels(choices=2, head="pair"))
        case "within another":
            model = named("BERT, masked").model()
            model.pair, model.which = Label(D, 2), Label(D, 1)
            pairs = Both(parts=(hides, NextSentence(head="pair")))
            parts = (pairs, Labels(choices=2, head="which"))
        case "directions":
            model = named("ELMo, both directions").model()
            model.pair = Pooled(model.backbone.width, 2, inner=None)
            parts = (BothDirections(), Labels(position="pooled", head="pair"))
            return (
                model.double(),
                Both(parts=parts),
                replace(words_only(), labels=batch().labels)[:2],
            )
    return model.double(), Both(parts=parts), batch("choices")[:2]


@pytest.mark.parametrize("name", ["pooled", "choices", "within another", "directions"])
def test_several_objectives_at_once_may_see_what_each_of_them_may(name: str):
    model, objective, given = both_of(name)
    found = trace(model, objective, given)
    assert found.leaks == []
    assert found.by_gradient.equal(found.positions_allowed)
    assert len({term for term, _, _ in found.predictions}) >= 2


def test_objectives_that_cannot_be_traced_are_refused():
    model, given = named("GPT, next word").model(), batch()
    answers = replace(given, labels=None, segments=given.real.long())
    with pytest.raises(ValueError, match="DPO compares whole answers: trace NextToken"):
        trace(model, DPO(reference=nn.Module()), answers)
    with pytest.raises(ValueError, match="a translation reads two texts"):
        trace(model, Translation(begin=1), given)


def test_words_that_are_hidden_within_objectives_within_others_are_not_readable():
    given, hides = batch(), named("BERT, masked").objective()
    twice = Both(parts=(Both(parts=(hides, NextSentence(head="pair"))), Labels(head="pair")))
    readable = [
        allowed.readable(each, given, each.targets(given, chance(given)), chance(given))
        for each in (hides, twice)
    ]
    assert not readable[0].all()
    assert readable[0].equal(readable[1])


def test_a_batch_that_uses_all_words_is_refused():
    with pytest.raises(ValueError, match="none is left to exchange"):
        trace(
            named("GPT, next word").model(),
            NextToken(),
            Batch.of(torch.arange(V)[None, :].view(6, 10)),
        )


# The picture


def test_the_picture_shows_each_prediction_and_each_word():
    given = batch()
    names = [f"<{word}>" for word in given.tokens[0].tolist()]
    found = traced(named("BERT, masked"))
    svg = ElementTree.fromstring(picture(found, names))
    count = sum(row == 0 for _, row, _ in found.predictions)
    squares = [e.get("fill") for e in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(squares) == count * 9 + 4
    assert squares.count("#d62728") == 1
    texts = [e.text for e in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:9] == names
    with patch.object(words.hiding, "corrupt", lambda tokens, *_, **__: tokens.clone()):
        leaking = picture(traced(named("BERT, masked")))
    # Nothing was hidden: each of the words that are predicted, and not kept, is read by all.
    hidden = (~found.words_allowed[0, 0]).sum()
    assert leaking.count("#d62728") == 1 + count * hidden


def test_a_leak_is_red_in_the_picture():
    pairing, _, put = PLANTED["queries that see their own word"]
    with put():
        found = traced(named(pairing))
    in_row = {
        (leak.position, leak.from_position)
        for leak in found.leaks
        if leak.row == leak.from_row == 0
    }
    assert picture(found).count("#d62728") == 1 + len(in_row)


def test_the_pictures_of_the_documentation_are_up_to_date():
    from draw_leaks import pages

    for path, text in pages().items():
        assert path.read_text() == text, "draw them again: python tests/draw_leaks.py"
