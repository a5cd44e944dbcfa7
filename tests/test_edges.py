"""Edges of everyday use: replaced layers, training mode, 16-bit weights, flat lists, no memory."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labkit.alignment import GRPO, Reinforce, Rollouts, reference_of
from labkit.alignment.preferences import DPO, AnswerTokens, answer_rows
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch, from_hub
from labkit.fast.decoding import can_decode
from labkit.heads import Label, MaskedWord, NextWord
from labkit.leaks.measured import trace
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import (
    Both,
    BothDirections,
    Distillation,
    Labels,
    NextToken,
    Objective,
    SpanEnds,
)
from labkit.plan import Plan
from labkit.sampling import Sampling, sample
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import Trainer, evaluate
from labkit.transfer import classifier, span_finder, tagger
from labkit.weights import WeightsError, save
from labkit.writing.beam import beam
from labkit.writing.filling import one_by_one
from labkit.writing.prompting import log_likelihoods

CPU: dict[str, Any] = {"device": "cpu", "precision": "float32"}


def gpt(width: int = 16, seed: int = 0, context: int = 16, **more: Any) -> LanguageModel:
    torch.manual_seed(seed)
    body = GPT(GPTConfig(20, width, 2, 2, context, **{"dropout": 0.0, **more}))
    return LanguageModel(body, NextWord(body.token)).eval()


def rows(count: int = 8, length: int = 8, **more: Any) -> Batch:
    random = torch.Generator().manual_seed(0)
    return Batch.of(torch.randint(0, 20, (count, length), generator=random), **more)


def chance(batch: Batch) -> Chance:
    return Chance(0, 0, batch.rows)


class Always:
    """The same batch at each step."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def at(self, step: int) -> Batch:
        return self.batch


def rollouts(model: LanguageModel, **more: Any) -> Rollouts:
    usual = {
        "model": model, "reference": reference_of(model), "prompts": [[1, 2]], "batch": 2,
        "group": 4, "reward": lambda prompts, answers: [float(answer[0]) for answer in answers],
        "settings": Sampling(length=6),
    }  # fmt: skip
    return Rollouts(**{**usual, **more})


# ---- a model that somebody has changed


class LowRank(nn.Linear):
    """A layer with an update of low rank, as in LoRA."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features)
        self.load_state_dict(base.state_dict())
        self.down = nn.Parameter(torch.randn(2, base.in_features))
        self.up = nn.Parameter(torch.randn(base.out_features, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x @ self.down.T @ self.up.T


def replace_layers(model: Any) -> None:
    first, second = model.backbone.blocks
    first.attention.out, second.mlp.up = LowRank(first.attention.out), LowRank(second.mlp.up)


def watch_layers(model: Any) -> None:
    model.backbone.blocks[0].mlp.register_forward_hook(lambda module, given, out: out * 50)


@pytest.mark.parametrize("change", [replace_layers, watch_layers])
def test_changed_layers_take_part_in_each_word(change: Callable[[Any], None]) -> None:
    model = gpt(32)
    assert can_decode(model)
    change(model)
    [[text]] = sample(model, [[1, 2, 3]], Sampling(length=8))
    whole = float(log_likelihoods(model, [[1, 2, 3]], [text.tokens]))
    assert text.log_probability == pytest.approx(whole, abs=1e-3)


def test_a_block_may_have_another_network() -> None:
    model: Any = gpt(32)
    model.backbone.blocks[0].mlp = nn.Identity()
    assert len(sample(model, [[1, 2, 3]], Sampling(length=4))[0][0].tokens) == 4


def test_a_model_without_memory_reads_all_that_was_written() -> None:
    torch.manual_seed(0)
    body = TransformerXL(TransformerXLConfig(20, 16, 2, 2, memory=0))
    model = LanguageModel(body, NextWord(body.token)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(6 if weight.dim() > 1 else 1)
    [[text]] = sample(model, [[1, 2, 3]], Sampling(length=6))
    whole = float(log_likelihoods(model, [[1, 2, 3]], [text.tokens]))
    assert text.log_probability == pytest.approx(whole, abs=1e-4)


def test_xlnet_cannot_continue_a_text() -> None:
    body = XLNet(XLNetConfig(20, 16, 2, 2))
    with pytest.raises(ValueError, match="from both sides"):
        sample(LanguageModel(body, NextWord(body.token)).eval(), [[1, 2]], Sampling(length=2))


# ---- a model that has just been trained is in training mode


def test_likelihoods_and_beams_drop_nothing() -> None:
    model = gpt(dropout=0.5).train()
    one, two = (log_likelihoods(model, [[1, 2, 3]], [[4], [5]]) for _ in range(2))
    assert torch.equal(one, two)
    found = {beam(model, [1, 2, 3], Sampling(length=4))[0].log_probability for _ in range(4)}
    assert len(found) == 1
    assert model.training


def test_blanks_are_filled_without_dropping_anything() -> None:
    torch.manual_seed(0)
    body = BERT(BERTConfig(20, 16, 2, 2, 16, dropout=0.5))
    model = LanguageModel(body, MaskedWord(body.token, 16)).train()
    one, two = (one_by_one(model, [1, 2, 3], [1, 2], mask=4) for _ in range(2))
    assert torch.equal(one, two)
    assert model.training


def test_a_reference_drops_nothing() -> None:
    policy, batch = gpt(dropout=0.5), answer_rows([[1, 2], [1, 2]], [[4, 5], [6, 7]])
    objective = DPO(reference=copy.deepcopy(policy).train(), beta=1.0)
    loss = float(objective(policy, batch, chance(batch)).loss.detach())
    assert loss == pytest.approx(0.693147, abs=1e-5)  # log 2: policy and reference are equal
    assert objective.reference.training
    drawn: Any = rollouts(gpt(), reference=gpt(dropout=0.5).train()).at(0)
    assert drawn.log_ratio.abs().max() < 1e-5


def test_a_policy_that_drops_anything_is_refused() -> None:
    with pytest.raises(ValueError, match=r"drops units \(.*attention.dropout is 0.5\)"):
        rollouts(gpt(attention_dropout=0.5))
    body = AWDLSTM(AWDLSTMConfig(20, 8, 12, 2))
    with pytest.raises(ValueError, match="drops units"):
        rollouts(LanguageModel(body, NextWord(body.token)).eval())


# ---- policy gradients


def test_a_group_and_a_temperature_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="group is 1, so no other answer is left"):
        Reinforce(group=1)
    with pytest.raises(ValueError, match="temperature is 0"):
        GRPO(temperature=0.0)
    with pytest.raises(ValueError, match="group is 0"):
        GRPO(group=0)
    assert Reinforce(group=1, baseline="none").group == 1


def test_prompts_may_be_rows_of_a_tensor() -> None:
    model, asked = gpt(), [[1, 2], [3, 4]]
    by_lists, by_tensor = (rollouts(model, prompts=p) for p in (asked, torch.tensor(asked)))
    assert by_lists.described() == by_tensor.described()
    assert torch.equal(by_lists.at(0).tokens, by_tensor.at(0).tokens)
    for none in ([], torch.empty(0, 2)):
        with pytest.raises(ValueError, match="there are no prompts"):
            rollouts(model, prompts=none)


def test_answers_are_scored_at_the_temperature_at_which_they_were_drawn() -> None:
    batch = rollouts(gpt(), settings=Sampling(length=6, temperature=0.5)).at(0)
    with pytest.raises(ValueError, match=r"drawn at a temperature of 0\.5 and are scored at 1"):
        GRPO(group=4).targets(batch, chance(batch))
    GRPO(group=4, temperature=0.5).targets(batch[:4], chance(batch[:4]))


def test_what_is_in_the_way_of_saving_a_policy_is_named(tmp_path: Path) -> None:
    model: Any = gpt()
    rollouts(model, epochs=2)
    with pytest.raises(WeightsError, match=r"del model\.behaviour"):
        save(model, tmp_path)
    del model.behaviour
    save(model, tmp_path)


# ---- what is summed, and in what


def test_each_answer_weighs_alike_by_row() -> None:
    model, batch = gpt(), answer_rows([[1, 2], [3]], [[4, 5, 6], [7, 8]])
    alone = [AnswerTokens()(model, batch[i : i + 1], chance(batch[i : i + 1])) for i in range(2)]
    mean = sum(float(outcome.loss) for outcome in alone) / 2
    both = AnswerTokens(by_row=True)(model, batch, chance(batch))
    assert float(both.loss) == pytest.approx(mean, rel=1e-5)


def test_scores_of_spans_are_those_of_all_positions() -> None:
    model, batch = span_finder(gpt()), rows(3, labels=torch.tensor([[1, 2], [3, 4], [5, 6]]))
    objective = SpanEnds()
    targets = objective.targets(batch, chance(batch))
    states, _ = objective.forward(model, targets)
    scores, ends = objective.scores(model, states, targets), model.head(states.hidden)  # type: ignore[operator]
    torch.testing.assert_close(scores["begin"], ends[:, :, 0])
    torch.testing.assert_close(scores["end"], ends[:, :, 1])


def test_spans_are_distilled_and_traced_at_all_positions() -> None:
    labels = torch.tensor([[1, 2], [3, 4], [5, 6]])
    real = torch.arange(8) < torch.tensor([[8], [7], [7]])
    batch = Batch.of(rows(3).tokens, real, labels=labels)
    student, teacher = (span_finder(gpt(seed=seed)).eval() for seed in (0, 3))
    objective = Distillation(task=SpanEnds(), teacher=teacher, hard=0.0, cosine=0.0)
    with torch.no_grad():
        found = objective(student, batch, chance(batch)).metrics
    assert float(found["soft begin"]) != float(found["soft end"])
    assert float(found["soft begin"]) < 100
    words = torch.randperm(16, generator=torch.Generator().manual_seed(0)).view(2, 8)[:, :6]
    seen = trace(student, SpanEnds(), Batch.of(words, labels=labels[:2]))
    assert seen.by_word[0, 0].all()
    assert not seen.leaks


def test_the_soft_loss_of_choices_is_a_mean_over_questions() -> None:
    student, teacher = (classifier(gpt(seed=seed), 1, dropout=0.0).eval() for seed in (0, 3))
    with torch.no_grad():
        for model in (student, teacher):
            model.head.labels.weight.mul_(30)  # type: ignore[operator, union-attr]
    batch = rows(labels=torch.zeros(8, dtype=torch.long))
    task = Labels(position="last", choices=2)
    targets = task.targets(batch, chance(batch))
    p, q = (
        task.scores(model, task.forward(model, targets)[0], targets)["label"].log_softmax(-1)
        for model in (teacher, student)
    )
    objective = Distillation(task=task, teacher=teacher, temperature=1.0, cosine=0.0)
    found = objective(student, batch, chance(batch)).metrics
    expected = float((p.exp() * (p - q)).sum(1).mean())
    assert float(found["soft label"]) == pytest.approx(expected, rel=1e-4)


def softly(task: Objective, student: Any, teacher: Any, batch: Batch) -> float:
    """The loss of a student that learns from its teacher only."""
    objective = Distillation(task=task, teacher=teacher, hard=0.0, soft=1.0, cosine=0.0)
    with torch.no_grad():
        return float(objective(student, batch, chance(batch)).loss)


def test_a_teacher_is_heard_where_the_task_hears_its_answers() -> None:
    pair: Any = [LanguageModel(gpt(seed=seed).backbone, nn.Identity()) for seed in (0, 3)]
    for model in pair:
        model.words, model.head = NextWord(model.backbone.token), Label(16, 2)
        model.eval()
    real = torch.arange(8) < torch.tensor([[8], [3], [5], [1]])
    batch = Batch.of(rows(4).tokens, real, labels=torch.tensor([0, 1, 0, 1]))
    label, words = Labels(position="last"), NextToken(head="words", by_row=True)
    of_rows = [softly(words, *pair, batch[i : i + 1]) for i in range(3)]
    # Four times (t^2) a difference of sums of about 3, known to 2.4e-7 in float32.
    assert softly(words, *pair, batch) == pytest.approx(sum(of_rows) / 3, abs=1e-6)
    alone = softly(label, *pair, batch), softly(words, *pair, batch)
    both = Both(parts=(label, words), weights=(0.5, 3.0))
    assert softly(both, *pair, batch) == pytest.approx(0.5 * alone[0] + 3 * alone[1], abs=3e-6)


def test_a_teacher_of_both_ends_or_both_directions_is_heard_half_at_each() -> None:
    labels = torch.tensor([[1, 2], [3, 4], [5, 6]])
    spans: Any = [span_finder(gpt(seed=seed)).eval() for seed in (0, 3)]
    for task, pair, batch in (
        (SpanEnds(), spans, rows(3, labels=labels)),
        (BothDirections(), [lookup_elmo(0), lookup_elmo(3)], rows(3)),
    ):
        student, teacher = pair
        objective = Distillation(task=task, teacher=teacher, cosine=0.0)
        with torch.no_grad():
            means = objective(student, batch, chance(batch)).metrics
        heard = [float(mean) for name, mean in means.items() if name.startswith("soft ")]
        assert len(heard) == 2
        assert softly(task, student, teacher, batch) == pytest.approx(sum(heard) / 2)


def lookup_elmo(seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    body = ELMo(ELMoConfig(20, kernels=(), width=8, inner=16, dropout=0.0))
    return LanguageModel(body, NextWord(body.token, tied=True)).eval()


def test_labels_are_counted_and_summed_exactly_in_16_bits() -> None:
    random = torch.Generator().manual_seed(1)
    batch = rows(64, 64, labels=torch.randint(0, 2, (64, 64), generator=random))
    model, task = tagger(gpt(context=64), 2).eval(), Labels(position="each")

    def right(some: Batch) -> float:
        return float(task(model, some, chance(some)).terms["label right"].total)

    with torch.autocast("cpu", torch.bfloat16):
        assert right(batch) == sum(right(batch[i : i + 2]) for i in range(0, 64, 2))
    many = rows(512, 40, labels=torch.randint(0, 50, (512, 40), generator=random))
    half = tagger(gpt(context=40), 50).eval().half()
    assert evaluate(half, task, [many]).loss < 10


def test_weights_of_16_bits_are_not_trained() -> None:
    with pytest.raises(ValueError, match=r"is torch.bfloat16.*train model.float\(\)"):
        Trainer(gpt().bfloat16(), NextToken(), Always(rows()), Plan(steps=1, **CPU))


@pytest.mark.parametrize("fast", ["0", "1"])
def test_whole_numbers_of_32_bits(fast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_FAST", fast)
    model, batch = gpt(), rows(labels=torch.zeros(8, dtype=torch.int32))
    short = evaluate(model, NextToken(), [Batch.of(batch.tokens.int())])
    assert short.loss == pytest.approx(evaluate(model, NextToken(), [batch]).loss)
    assert evaluate(classifier(model, 2), Labels(position="last"), [batch]).loss > 0


# ---- what is given


ASKED: list[Callable[[Any], Any]] = [
    lambda model: sample(model, [1, 2], Sampling()),  # type: ignore[list-item]
    lambda model: sample(model, torch.tensor([1, 2]), Sampling()),  # type: ignore[arg-type]
    lambda model: log_likelihoods(model, [[1, 2]], [5, 6]),  # type: ignore[list-item]
]


@pytest.mark.parametrize("ask", ASKED)
def test_a_flat_list_of_tokens_is_no_list_of_prompts(ask: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="give a list of lists of tokens"):
        ask(gpt())


def test_a_single_batch_may_be_evaluated() -> None:
    model, batch = gpt(), rows()
    one = evaluate(model, NextToken(), batch)  # type: ignore[arg-type]
    assert one.loss == evaluate(model, NextToken(), [batch]).loss


def test_a_vocabulary_without_room_for_words_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 5: give at least"):
        Tokenizer.words(["a b c"], size=5)


def test_an_unknown_label_of_the_hub_is_no_class() -> None:
    class Data:
        """What is used of a data set of the hub."""

        column_names, _fingerprint = ("text", "label"), "z"
        features = MappingProxyType({"text": None, "label": None})
        rows = ({"text": "a", "label": "x"}, {"text": "c", "label": None},
                {"text": "d", "label": "y"})  # fmt: skip

        def unique(self, column: str) -> list[Any]:
            return list(dict.fromkeys(row[column] for row in self.rows))

        def select_columns(self, columns: list[str]) -> tuple[dict[str, Any], ...]:
            return self.rows

    found = from_hub(Data(), label="label")
    assert found.classes == ("x", "y")
    assert [document.label for document in found] == [0, None, 1]


def test_a_run_goes_on_with_other_groups(tmp_path: Path) -> None:
    first = Trainer(gpt(), NextToken(), Always(rows()), Plan(steps=2, **CPU), progress=False)
    list(first.resume(tmp_path))
    model: Any = gpt()
    model.backbone.token.weight.requires_grad_(False)
    groups = [([weight for weight in model.parameters() if weight.requires_grad], 1.0)]
    second = Trainer(
        model, NextToken(), Always(rows()), Plan(steps=4, **CPU), groups=groups, progress=False
    )
    list(second.resume(tmp_path, changed=["steps", "groups"]))
    assert second.step == 4
