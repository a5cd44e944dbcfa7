"""What is asked of a model, and what comes of it."""

from dataclasses import fields, replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from pairings import (
    COUNTS,
    MASK,
    PAIRINGS,
    SMALL,
    VOCABULARY,
    Pairing,
    V,
    awd_lstm,
    batch,
    bert,
    chance,
    gpt,
    gradients,
    masked,
    named,
    transformer_xl,
)
from shapes import checked_shapes
from torch import Tensor, nn

from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch, Pairs, Streams, Windows, from_documents, tokenize
from labkit.heads import Label, MaskedWord, NextWord
from labkit.masking import real_keys
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import WeightedSum
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.word_vectors import draw_noise, noise_distribution
from labkit.objectives import (
    CBOW,
    Both,
    BothDirections,
    Distillation,
    Labels,
    MaskedToken,
    Memory,
    NextSentence,
    NextToken,
    Objective,
    Outcome,
    Permutation,
    SentenceOrder,
    SkipGram,
    Sum,
    auxiliary,
    combine,
    total,
)
from labkit.objectives.hiding import ordinary
from labkit.text.tokenizers import Tokenizer
from labkit.transfer.mixed import Mixed

every = pytest.mark.parametrize("pairing", PAIRINGS, ids=lambda pairing: pairing.name)


def text(rows: int, length: int, seed: int = 1) -> Tensor:
    return 5 + Chance(seed, 0, torch.arange(rows)).integers("text", length, V - 5)


def run(objective: Objective, model: nn.Module, given: Batch, seed: int = 1, **more) -> Outcome:
    return objective(model, given, chance(given, seed), **more)


def widened(given: Batch, more: int) -> Batch:
    """The same rows with more padding."""
    blank = {"tokens": 0, "real": False, "segments": 0, "words": 0, "labels": -1, "documents": 0}
    wide = {
        name: F.pad(table, (0, more), value=blank[name])
        for name in blank
        if (table := getattr(given, name)) is not None and table.dim() == 2
    }
    return replace(given, **wide)


def same(model: nn.Module, one: Tensor, other: Tensor) -> None:
    """Two losses and their gradients agree."""
    assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)
    there = gradients(model, other)
    for name, gradient in gradients(model, one).items():
        assert torch.allclose(gradient, there[name], rtol=1e-7, atol=1e-10), name


# What holds for every objective


@every
def test_padding_does_not_matter(pairing: Pairing):
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    same(model, run(objective, model, given).loss, run(objective, model, widened(given, 3)).loss)


@every
def test_the_order_of_rows_does_not_matter(pairing: Pairing):
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    turned = given[torch.tensor([2, 3, 0, 1])]
    same(model, run(objective, model, given).loss, run(objective, model, turned).loss)


@every
def test_a_step_in_parts_is_the_step(pairing: Pairing):
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    choices = objective.choices if isinstance(objective, Labels) else 1
    whole = run(objective, model, given)
    for rows in ((1, 3), (1, 1, 1, 1)) if choices == 1 else ((2, 2),):
        parts = torch.arange(4).split(rows)
        asked = [objective.targets(given[part], chance(given[part])) for part in parts]
        assert total(asked) == {name: term.count for name, term in whole.terms.items()}
        outcomes = [objective.loss(model, targets.to("cpu")) for targets in asked]
        shares = [outcome.over(total(asked)) for outcome in outcomes]
        assert torch.allclose(combine(outcomes).loss, whole.loss)
        same(model, run(objective, model, given).loss, torch.stack(shares).sum())


@every
def test_nothing_given_is_changed(pairing: Pairing):
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    first = run(objective, model, given)
    before = {
        field.name: table.clone()
        for field in fields(given)
        if (table := getattr(given, field.name)) is not None
    }
    kept = first.memory.tensors() if first.memory else {}
    copies = {name: part.clone() for name, part in kept.items()}
    # Some rows go on and some begin anew, so that part of the memory is forgotten.
    some = torch.arange(len(given)) % 2 == 1
    for fresh in (torch.zeros_like(given.fresh), some):
        run(objective, model, replace(given, fresh=fresh), memory=first.memory)
    for name, table in before.items():
        assert getattr(given, name).equal(table), name
    for name, part in copies.items():
        assert kept[name].equal(part), name
    # And so the same is found again, bit for bit.
    assert run(objective, model, given).loss.equal(first.loss)


@every
def test_nothing_to_predict_is_a_loss_of_zero(pairing: Pairing):
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    empty = replace(given, real=torch.zeros_like(given.real))
    if given.labels is not None:
        empty = replace(empty, labels=torch.full_like(given.labels, -1))
    outcome = run(objective, model, empty)
    assert (outcome.loss.item(), outcome.count) == (0.0, 0)
    assert all(g.isfinite().all() for g in gradients(model, outcome.loss).values())


@every
def test_the_head_answers_at_real_places_only_and_targets_are_the_text(pairing: Pairing):
    objective, given = pairing.objective(), pairing.batch()
    targets = objective.targets(given, chance(given))
    for name, asked in targets.predicted.items():
        rows_N, positions_N, targets_N = asked
        if targets.queries is not None:
            positions_N = targets.queries[rows_N, positions_N]
        assert given.real[rows_N, positions_N].all()
        shift = {"word": 1 if isinstance(objective, NextToken) else 0, "next": 1, "previous": -1}
        if "label" in name or "sentence" in name:
            labels = given.labels if given.labels.dim() == 1 else given.labels[rows_N, positions_N]
            assert targets_N.equal(labels[rows_N] if given.labels.dim() == 1 else labels)
        elif name != "pair" and not isinstance(objective, Both | Sum):
            assert targets_N.equal(given.tokens[rows_N, positions_N + shift.get(name, 0)])


@every
def test_suffixes_do_not_lie(pairing: Pairing):
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    with checked_shapes() as seen:
        run(objective, model, given)
    assert {"rows_N", "positions_N", "targets_N"} & seen or "present_NK" in seen


# Next words


def test_next_token_is_the_mean_surprise():
    model, tokens = named("GPT, next word").model(), text(3, 9)
    outcome = run(NextToken(), model, Batch.of(tokens))
    log_p = model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None])
    assert outcome.count == 24
    assert torch.allclose(outcome.loss, -log_p.mean())


def test_packed_documents_are_as_good_as_rows_of_their_own():
    model, tokens = named("GPT, next word").model(), text(1, 10)
    model.backbone.position.weight.data.zero_()
    documents = torch.tensor([[0] * 4 + [1] * 6])
    packed = run(NextToken(), model, Batch.of(tokens, documents=documents))
    apart = [run(NextToken(), model, Batch.of(part)) for part in tokens.split((4, 6), dim=1)]
    assert packed.count == 8
    assert torch.allclose(packed.loss, combine(apart).loss)


@pytest.mark.parametrize("make", [gpt, awd_lstm], ids=["GPT", "AWD-LSTM"])
def test_memory_makes_two_segments_one_text(make):
    model, tokens = make().double().eval(), text(2, 13)
    objective, goes_on = NextToken(carry=True), torch.tensor([False, False])
    first = run(objective, model, Batch.of(tokens[:, :7]))
    later = Batch.of(tokens[:, 6:], fresh=goes_on)
    second = run(objective, model, later, memory=first.memory)
    whole = run(NextToken(), model, Batch.of(tokens))
    assert torch.allclose(combine([first, second]).loss, whole.loss)
    tensors = first.memory.tensors()
    assert not any(part.requires_grad for part in tensors.values())
    again = run(objective, model, later, memory=Memory.load(tensors))
    assert again.loss.equal(second.loss)


def test_memory_of_transformer_xl_is_cut_to_its_length_and_survives_a_checkpoint():
    model, objective = transformer_xl(4).double().eval(), NextToken(carry=True)
    goes_on, memory = torch.tensor([False, False]), None
    for seed in range(3):
        outcome = run(objective, model, Batch.of(text(2, 4, seed), fresh=goes_on), memory=memory)
        memory = Memory.load(outcome.memory.tensors())
        assert memory.known.shape == (2, min(4, 3 * (seed + 1)))
        assert [len(memory.layers), *memory.layers[0].shape[:2]] == [2, 2, memory.known.shape[1]]


@pytest.mark.parametrize("make", [gpt, lambda: transformer_xl(12), awd_lstm])
def test_a_fresh_row_remembers_nothing(make):
    check_fresh(make().double().eval())


def check_fresh(model: nn.Module) -> None:
    """A fresh row sees nothing of before, now or later; the row beside it does."""
    if hasattr(model.backbone, "position"):
        # GPT goes on counting where the longest memory ends: without places, nothing tells.
        model.backbone.position.weight.data.zero_()
    tokens, objective = text(2, 9), NextToken(carry=True)
    pasts = [run(objective, model, Batch.of(text(2, 6, seed))).memory for seed in (5, 6)]
    now = Batch.of(tokens, fresh=torch.tensor([True, False]))
    mixed = [run(objective, model, now, memory=past) for past in pasts]
    later = Batch.of(text(2, 4, 9), fresh=torch.tensor([False, False]))
    for step, memories in ((now, pasts), (later, [outcome.memory for outcome in mixed])):
        for row, forgot in ((0, True), (1, False)):
            one = [
                Memory.load({k: v[row : row + 1] for k, v in m.tensors().items()}) for m in memories
            ]
            losses = [run(objective, model, step[row : row + 1], memory=m).loss for m in one]
            assert losses[0].equal(losses[1]) == forgot
    # As if nothing had ever been before the row was fresh.
    alone = run(objective, model, now[:1]).memory
    history = Memory.load({k: v[:1] for k, v in mixed[0].memory.tensors().items()})
    losses = [run(objective, model, later[:1], memory=m).loss for m in (alone, history)]
    assert torch.allclose(*losses, rtol=1e-10)
    afresh = [
        run(objective, model, Batch.of(tokens), memory=past).loss for past in (pasts[0], None)
    ]
    assert afresh[0].equal(afresh[1])


def test_ar_and_tar_hold_states_small_and_smooth():
    model, given = named("AWD-LSTM, next word").model(), batch()
    # Stands for dropout: what the head sees differs from what the last LSTM said.
    model.backbone.dropout = nn.Hardtanh(-0.02, 0.05)
    outcome = run(NextToken(ar=2.0, tar=3.0), model, given)
    seen, real = given.tokens[:, :-1], given.real[:, 1:]
    states = model.backbone(seen)
    squares = [states.hidden[b, t].square().mean() for b, t in real.nonzero().tolist()]
    raw, pairs = states.layers[-2], (real[:, 1:] & real[:, :-1]).nonzero().tolist()
    steps = [(raw[b, t + 1] - raw[b, t]).square().mean() for b, t in pairs]
    expected = (
        outcome.metrics["word"] + 2 * torch.stack(squares).mean() + 3 * torch.stack(steps).mean()
    )
    assert torch.allclose(outcome.loss, expected)
    # One row is smoothed too: what counts is its length, not the size of the batch.
    assert run(NextToken(tar=3.0), model, given[:1]).metrics["tar"] > 0


def test_both_directions_are_two_language_models():
    pairing = named("ELMo, both directions")
    model, given = pairing.model(), pairing.batch()
    outcome = run(BothDirections(), model, given)
    alone = replace(given[:1], tokens=given.tokens[:1].flip(1))
    assert outcome.metrics.keys() == {"next", "previous"}
    assert torch.allclose(outcome.loss, (outcome.metrics["next"] + outcome.metrics["previous"]) / 2)
    asked = BothDirections().targets(alone, chance(alone)).predicted
    assert asked["next"].targets_N.equal(alone.tokens[0, 1:])
    assert asked["previous"].targets_N.equal(alone.tokens[0, :-1])


# Masked and permuted words


def test_masked_words_are_predicted_from_the_corrupted_text():
    model, given, objective = named("BERT, masked").model(), batch(), masked()()
    targets = objective.targets(given, chance(given))
    rows_N, positions_N, targets_N = targets.predicted["masked"]
    assert (targets.inputs.tokens == MASK).any()
    mask = given.real[:, None, None]
    hidden = model.backbone(targets.inputs.tokens, mask=mask, segments_BT=given.segments).hidden
    scores = model.head(hidden)[rows_N, positions_N]
    loss = F.cross_entropy(scores, targets_N)
    assert torch.allclose(run(objective, model, given).loss, loss)


def test_static_masks_follow_the_example():
    given = Batch.of(text(40, 30))
    moved = replace(given, rows=given.rows + 7)
    for static in (True, False):
        objective = masked(static=static)()
        one = objective.targets(given, chance(given, step=1)).inputs.tokens
        other = objective.targets(moved, chance(moved, step=2)).inputs.tokens
        assert one.equal(other) == static
    turned = given[torch.randperm(40)]
    static = masked(static=True)()
    one, other = (static.targets(each, chance(each)).inputs.tokens for each in (given, turned))
    assert one[turned.examples].equal(other)


def test_permutations_ask_the_last_words_of_the_order():
    given = batch()
    objective = Permutation(vocabulary=VOCABULARY, share=0.5)
    targets = objective.targets(given, chance(given))
    words = ordinary(given.tokens, given.real, VOCABULARY)
    asked, order = targets.predicted["word"], targets.order
    positions_N = targets.queries[asked.rows_N, asked.positions_N]
    for row, count in enumerate(words.sum(1).tolist()):
        ranks = order.rank[row, positions_N[asked.rows_N == row]].tolist()
        assert sorted(ranks) == list(range(count - max(round(count / 2), 1), count))


def test_a_query_knows_the_earlier_words_and_not_its_own():
    """The last of a full order sees all other words, the first sees special tokens only."""
    model = named("XLNet, all permuted").model()
    given = batch()[:1]
    objective = Permutation(vocabulary=VOCABULARY, share=1.0)
    targets = objective.targets(given, chance(given))
    states, _ = objective.forward(model, targets)
    rank = targets.order.rank[0, targets.queries[0]]
    first = int(rank.argmin())
    changed = replace(targets.inputs, tokens=torch.where(given.tokens < 5, given.tokens, 20))
    blind, _ = objective.forward(model, replace(targets, inputs=changed))
    assert states.hidden[0, first].equal(blind.hidden[0, first])
    assert not torch.allclose(states.hidden[0, rank.argmax()], blind.hidden[0, rank.argmax()])


# Word vectors


def test_skip_gram_is_the_formula_over_all_neighbours():
    model, given = named("word vectors, skip-gram").model(), batch()
    objective = SkipGram(counts=COUNTS, reach=1, noise=3, threshold=None)
    targets = objective.targets(given, chance(given))
    v, u = model.backbone.token.weight, model.backbone.output.weight
    noise = targets.sampled[1]
    found = set()
    loss = torch.zeros(())
    for n, (b, t, near) in enumerate(
        zip(*(x.tolist() for x in targets.predicted["pair"]), strict=True)
    ):
        centre = v[given.tokens[b, t]]
        loss = loss - F.logsigmoid(u[near] @ centre) - F.logsigmoid(-u[noise[n]] @ centre).sum()
        found.add((int(given.tokens[b, t]), near))
    assert torch.allclose(run(objective, model, given).loss, loss / len(found))
    words = [row[row >= 5].tolist() for row in given.tokens]
    # Special tokens are left out before the windows are laid.
    pairs = {pair for row in words for a, b in pairwise(row) for pair in ((a, b), (b, a))}
    assert found == pairs


def test_noise_has_its_distribution_in_each_pair():
    given = Batch.of(text(60, 60))
    for objective in (SkipGram(counts=COUNTS, threshold=None), CBOW(counts=COUNTS, threshold=None)):
        noise = objective.targets(given, chance(given)).sampled[-1]
        counts = torch.bincount(noise.flatten(), minlength=V).double()
        expected = noise_distribution(COUNTS) * noise.numel()
        assert counts[:5].sum() == 0
        deviations = (counts - expected)[5:] / expected[5:].sqrt()
        assert deviations.abs().max() < 4.5
    assert draw_noise(noise_distribution(COUNTS), torch.tensor([0.0])) == 5


# Labels


def test_labels_answer_at_the_first_or_the_last_real_word():
    model, given = named("GPT, label").model(), batch()
    scores = model(given.tokens)
    ends = given.real.sum(1) - 1
    loss = F.cross_entropy(scores[torch.arange(4), ends], given.labels)
    outcome = run(Labels(position="last"), model, given)
    assert torch.allclose(outcome.loss, loss)
    right = scores[torch.arange(4), ends].argmax(-1) == given.labels
    assert torch.allclose(outcome.metrics["label right"], right.double().mean())
    with pytest.raises(ValueError, match="GPT has read one word at the first position"):
        run(Labels(), model, given)
    model, mask = named("BERT, label").model(), real_keys(given.real)
    states = model.backbone(given.tokens, mask=mask, segments_BT=given.segments)
    first = F.cross_entropy(model.head(states.hidden[:, 0]), given.labels)
    assert torch.allclose(run(Labels(), model, given).loss, first)


def test_unknown_labels_are_not_asked():
    model, given = named("GPT, label").model(), batch()
    some = replace(given, labels=torch.tensor([1, -1, 1, -1]))
    known = run(Labels(position="last"), model, given[torch.tensor([0, 2])])
    outcome = run(Labels(position="last"), model, some)
    assert outcome.count == 2
    assert torch.allclose(outcome.loss, known.loss)


def test_choices_compete_within_their_question():
    pairing = named("BERT, choices")
    model, given = pairing.model(), pairing.batch()
    mask = given.real[:, None, None]
    hidden = model.backbone(given.tokens, mask=mask, segments_BT=given.segments).hidden
    scores = model.head(hidden[:, 0]).view(2, 2)
    expected = F.cross_entropy(scores, torch.tensor([1, 0]))
    assert torch.allclose(run(Labels(choices=2), model, given).loss, expected)


# Several at once


def test_l3_is_l2_and_a_share_of_l1():
    model, given = named("GPT, L3").model(), batch()
    l1 = run(NextToken(head="words"), model, given).loss
    l2 = run(Labels(position="last"), model, given).loss
    same(model, run(auxiliary(0.5), model, given).loss, l2 + 0.5 * l1)


def test_both_reads_once_and_sum_reads_twice():
    model, given = named("BERT, masked and next sentence").model(), batch()
    one, two = masked()(), NextSentence(head="pair")
    read = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    both = run(Both(parts=(one, two), weights=(1.0, 2.0)), model, given)
    assert len(read) == 1
    separate = run(Sum(parts=(one, two), weights=(1.0, 2.0)), model, given)
    assert len(read) == 3
    assert torch.allclose(
        separate.loss, run(one, model, given).loss + 2 * run(two, model, given).loss
    )
    # BERT's second task reads the text in which words are hidden.
    assert not torch.allclose(both.metrics["next sentence"], separate.metrics["next sentence"])


def test_distillation_is_its_formula():
    pairing = named("DistilBERT, distilled")
    model, objective, given = pairing.model(), pairing.objective(), pairing.batch()
    targets = objective.task.targets(given, chance(given))
    rows_N, positions_N, targets_N = targets.predicted["masked"]
    mask, seen = given.real[:, None, None], targets.inputs.tokens
    mine = model.backbone(seen, mask=mask).hidden
    theirs = objective.teacher.backbone(seen, mask=mask, segments_BT=given.segments).hidden
    scores = model.head(mine[rows_N, positions_N])
    soft = F.kl_div(
        F.log_softmax(scores / 2, -1),
        F.softmax(objective.teacher.head(theirs[rows_N, positions_N]) / 2, -1),
        reduction="batchmean",
    )
    ones = torch.ones(int(given.real.sum()))
    cosine = F.cosine_embedding_loss(mine[given.real], theirs[given.real], ones)
    expected = 2 * F.cross_entropy(scores, targets_N) + 5 * 4 * soft + cosine
    outcome = run(objective, model, given)
    assert torch.allclose(outcome.loss, expected)
    assert not any(p.grad is not None for p in objective.teacher.parameters())
    copy = Distillation(task=objective.task, teacher=objective.teacher, hard=0.0)
    itself = run(copy, objective.teacher, given)
    assert abs(itself.loss.item()) < 1e-9


# What is refused


def test_what_cannot_be_asked_is_refused():
    given = batch()
    for how, message in (
        ({"rate": 1.5}, r"rate is 1\.5"),
        ({"shares": (0.8, 0.1, 0.2)}, "add up to 1"),
        ({"unit": "line"}, "choose token, word, ngram or span"),
        ({"vocabulary": VOCABULARY._replace(mask=None)}, r"no \[MASK\]"),
    ):
        with pytest.raises(ValueError, match=message):
            MaskedToken(**({"vocabulary": VOCABULARY} | how))
    with pytest.raises(ValueError, match="share is -1"):
        Permutation(vocabulary=VOCABULARY, share=-1)
    for objective, batch_, message in (
        (NextSentence(), replace(given, segments=None), "next sentence needs pairs"),
        (Labels(), replace(given, labels=None), r"label needs one of shape \(4,\): give each"),
        (Labels(position="each"), given, r"needs one of shape \(4, 9\)"),
        (Labels(choices=3), given, "3 choices are not next to each other"),
        (Labels(choices=2), given, "do not have the same label"),
        (masked(unit="word")(), replace(given, words=None), "give Batch.words"),
        (NextToken(), replace(given, real=given.real.flip(1)), "put it all at the end"),
        (NextToken(carry=True), replace(given, documents=given.segments), "packed documents"),
        (BothDirections(), replace(given, documents=given.segments), "give each a row"),
    ):
        with pytest.raises(ValueError, match=message):
            objective.targets(batch_, chance(batch_))


def test_sums_that_cannot_be_are_refused():
    given = batch()
    with pytest.raises(ValueError, match="at least two objectives"):
        Both(parts=(NextToken(),))
    with pytest.raises(ValueError, match=r"choices is 1\.5: give a whole number from 1"):
        Labels(choices=1.5)
    with pytest.raises(ValueError, match="2 objectives with 1 weights"):
        Sum(parts=(NextToken(), Labels()), weights=(1.0,))
    with pytest.raises(ValueError, match="put the one that hides words first"):
        Both(parts=(Labels(), masked()())).targets(given, chance(given))
    with pytest.raises(ValueError, match="both measure"):
        Both(parts=(Labels(), Labels(position="last"))).targets(given, chance(given))
    with pytest.raises(ValueError, match="temperature above 0"):
        Distillation(task=masked()(), teacher=bert(), temperature=0)
    with pytest.raises(ValueError, match="training mode"):
        run(Distillation(task=masked()(), teacher=bert().double()), bert().double(), given)
    teacher = bert().double().eval()
    teacher.backbone.train()  # of a model that is evaluated, a part may drop units
    with pytest.raises(ValueError, match="training mode"):
        run(Distillation(task=masked()(), teacher=teacher), bert().double(), given)


def test_a_model_that_reads_both_ways_cannot_predict_the_next_word():
    for name in ("LSTM both ways, label", "CNN, label", "ELMo, both directions"):
        model = named(name).model()
        with pytest.raises(ValueError, match="would see the word"):
            run(NextToken(), model, batch())


def test_memory_of_other_rows_is_refused():
    model, objective = gpt().eval(), NextToken(carry=True)
    memory = run(objective, model, Batch.of(text(2, 5))).memory
    goes_on = Batch.of(text(3, 5), fresh=torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="memory has 2 rows, the batch 3"):
        run(objective, model, goes_on, memory=memory)


# With batches of the corpus


def test_batches_of_the_corpus_can_be_asked():
    stories = [f"{a} b c . d {a} e . f g {a} h ." for a in ("one", "two", "three", "four")]
    tokenizer = Tokenizer.words(stories)
    tokens = tokenize(from_documents(stories), tokenizer)
    vocabulary = tokenizer.vocabulary
    hide = MaskedToken(vocabulary=vocabulary, rate=0.5)
    torch.manual_seed(0)
    backbone = BERT(BERTConfig(vocabulary.size, **SMALL))
    model = LanguageModel(backbone, MaskedWord(backbone.token, 16))
    model.pair = Label(16, 2)
    gpt_ = GPT(GPTConfig(vocabulary.size, **SMALL))
    left = LanguageModel(gpt_, NextWord(gpt_.token))
    asked = [
        (Pairs(tokens, 14, "next", batch=4), Both(parts=(hide, NextSentence(head="pair"))), model),
        (Pairs(tokens, 14, "order", batch=4), SentenceOrder(head="pair"), model),
        (Windows(tokens, 12, batch=4), hide, model),
        (
            Windows(tokens, 12, batch=4, apart=True),
            NextToken(),
            left,
        ),
    ]
    for batches, objective, each in asked:
        outcome = run(objective, each, batches.at(0))
        assert outcome.count > 0
        assert outcome.loss.isfinite()


def test_a_stream_is_read_once_from_its_first_word_to_its_last():
    stories = [" ".join(f"w{i}" for i in range(40))]
    tokenizer = Tokenizer.words(stories)
    streams = Streams(tokenize(from_documents(stories), tokenizer), 6, batch=2)
    objective, targets = NextToken(carry=True), []
    for step in range(3):
        given = streams.at(step)
        assert given.fresh.all() == (step == 0)
        asked = objective.targets(given, chance(given)).predicted["word"]
        targets.append(asked.targets_N.view(2, -1))
    rows = torch.cat(targets, 1)
    texts = [tokenizer.decode(row) for row in rows]
    for text_ in texts:
        numbers = [int(word[1:]) for word in text_.split()]
        assert numbers == list(range(numbers[0], numbers[0] + 18))


def test_wrapped_backbones_read_as_they_do_alone():
    """A mix of layers is still told its segments, and still looks left."""
    given = batch()
    for name in ("BERT, label", "GPT, label"):
        pairing = named(name)
        model, objective = pairing.model(), pairing.objective()
        expected = run(objective, model, given).loss
        model.backbone = Mixed(model.backbone, WeightedSum(3))
        model.backbone.mix.double()
        # All the weight on the last layer.
        model.backbone.mix.weights.data = torch.tensor([0.0, 0.0, 1e4]).double()
        assert torch.allclose(run(objective, model, given).loss, expected)


def test_masked_words_are_replaced_by_words_as_frequent_as_said() -> None:
    given = Batch.of(text(100, 100))
    frequencies = torch.zeros(V)
    frequencies[[7, 9]] = torch.tensor([3.0, 1.0])
    objective = MaskedToken(
        vocabulary=VOCABULARY, rate=0.5, shares=(0.0, 1.0, 0.0), frequencies=frequencies
    )
    targets = objective.targets(given, chance(given))
    rows_N, positions_N, _ = targets.predicted["masked"]
    words = targets.inputs.tokens[rows_N, positions_N]
    assert set(words.tolist()) == {7, 9}
    assert float((words == 7).double().mean()) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
def test_the_reach_of_a_word_is_drawn_and_frequent_words_are_left_out(kind) -> None:
    given = Batch.of(text(200, 40))
    objective = kind(counts=COUNTS, reach=4, threshold=None)
    found = objective.around(given, chance(given))
    middle = (found.centres_N % 40 >= 4) & (found.centres_N % 40 < 36)
    reaches = found.present_NK[middle].sum(dim=1)
    assert set(reaches.tolist()) == {2, 4, 6, 8}
    shares = reaches.bincount(minlength=9)[2::2] / len(reaches)
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.03)
    counts = torch.zeros(V)
    counts[5], counts[6:] = 900.0, 100.0 / (V - 6)
    rare = replace(objective, counts=counts, threshold=0.01)
    kept = given.tokens.flatten()[rare.around(given, chance(given)).centres_N]
    share = float((kept == 5).sum() / (given.tokens == 5).sum())
    # sqrt(0.01 / 0.9) of the frequent word, all of the others.
    assert share == pytest.approx(0.105, abs=0.05)
    assert (kept != 5).sum() == (given.tokens != 5).sum()
