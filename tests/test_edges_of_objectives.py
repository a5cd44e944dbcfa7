"""Edges of objectives: 16-bit scores, padding and memory, unspelled words, unknown choices."""

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from test_edges import Always, chance, gpt, rollouts, rows
from torch import Tensor, nn

from labkit import fast
from labkit.alignment import GRPO, PPO, Reinforce
from labkit.alignment.preferences import (
    BradleyTerry,
    answer_log_probs,
    answer_rows,
    learned_rewards,
)
from labkit.blocks import Backbone, Classifier, LanguageModel, States
from labkit.chance import Chance
from labkit.corpus import Batch, Examples, Stages, from_documents, pad_rows, tokenize
from labkit.fast.softmax import losses
from labkit.heads import Label, MaskedWord, NextWord, Pooled, Span, WordHead
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import Bag, BagConfig, Recurrent, RecurrentConfig
from labkit.models.transformer import Transformer, TransformerConfig
from labkit.models.transformer_xl import (
    AdaptiveEmbedding,
    TransformerXL,
    TransformerXLConfig,
)
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import (
    CBOW,
    Balanced,
    Both,
    BothDirections,
    Distillation,
    Labels,
    NextToken,
    Objective,
    Permutation,
    Predicted,
    Similarity,
    SkipGram,
    SpanEnds,
    Sum,
    Targets,
    Translation,
)
from labkit.objectives.base import Outcome, Term
from labkit.objectives.sums import soft_losses
from labkit.plan import Plan
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.text.vocabulary import Vocabulary
from labkit.trainer import Trainer, evaluate
from labkit.writing.beam import beam
from labkit.writing.prompting import log_likelihoods


def awd_lstm() -> AWDLSTM:
    torch.manual_seed(0)
    return AWDLSTM(AWDLSTMConfig(20, width=8, inner=12, layers=1)).eval()


def bert() -> LanguageModel:
    torch.manual_seed(0)
    body = BERT(BERTConfig(20, 8, 1, 2, 16, dropout=0.0))
    nn.init.normal_(body.token.weight)
    return LanguageModel(body, MaskedWord(body.token, 8)).eval()


# ---- scores of 16 bits -------------------------------------------------------------------------


def test_the_losses_of_a_translation_are_summed_exactly() -> None:
    body = Transformer(TransformerConfig(50, 16, 1, 2, inner=32))
    labels = torch.randint(0, 50, (59, 17), generator=torch.Generator().manual_seed(0))

    class Perfect(nn.Module):
        def forward(self, hidden_ND: Tensor) -> Tensor:
            return 8 * nn.functional.one_hot(labels.flatten(), 50).bfloat16()

    model = LanguageModel(body, NextWord(body.token)).eval()
    model.head = Perfect()
    batch = Batch.of(torch.randint(0, 50, (59, 5)), labels=labels)
    with torch.autocast("cpu", torch.bfloat16):
        found = Translation(begin=0)(model, batch, chance(batch))
    assert float(found.terms["words right"].total) == 59 * 17
    wanted = -torch.tensor([8.0] + 49 * [0.0]).log_softmax(dim=0)[0]
    torch.testing.assert_close(found.metrics["words"], wanted, rtol=1e-5, atol=0)


def test_a_hole_in_a_translation_is_no_word() -> None:
    batch = Batch.of(torch.zeros(1, 2, dtype=torch.long), labels=torch.tensor([[5, -100, 7]]))
    with pytest.raises(ValueError, match="below zero comes before a word of the target"):
        Translation(begin=0).targets(batch, chance(batch))
    with pytest.raises(ValueError, match=r"begin is 1\.5"):
        Translation(begin=1.5)


def test_the_distance_from_a_teacher_is_never_negative() -> None:
    random = torch.Generator().manual_seed(0)
    teacher = 3 * torch.randn(512, 200, generator=random)
    student = teacher + 0.05 * torch.randn(512, 200, generator=random)
    exact = soft_losses(teacher, student, 2.0).sum()
    rounded = soft_losses(teacher.bfloat16(), student.bfloat16(), 2.0).sum()
    assert rounded > 0
    torch.testing.assert_close(rounded, exact, rtol=0.2, atol=0)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_penalties_are_summed_exactly() -> None:
    backbone = awd_lstm()
    model, batch = LanguageModel(backbone, NextWord(backbone.token)), rows()
    # oneDNN has no LSTM in bfloat16 where the processor has no such products.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        found = NextToken(ar=2.0, tar=1.0)(model, batch, chance(batch))
    assert {term.total.dtype for term in found.terms.values()} == {torch.float32}


def test_the_angles_to_a_teacher_are_summed_exactly() -> None:
    model, batch = narrow_bert(), rows()
    given = Distillation(task=Labels(), teacher=narrow_bert())
    batch = dataclasses.replace(batch, labels=torch.zeros(len(batch), dtype=torch.long))
    with torch.autocast("cpu", torch.float16):
        found = given(model, batch, chance(batch))
    assert found.terms["cosine"].total.dtype == torch.float32


def narrow_bert() -> Classifier:
    """Its words' vectors are narrow, as ALBERT's, and under autocast all states are in 16 bits."""
    body = BERT(BERTConfig(20, 8, 1, 2, 16, embedding=4))
    return Classifier(body, Label(8, 2)).eval()


def test_measuring_computes_no_gradients() -> None:
    asked = torch.randn(4, 8), torch.randn(20, 8, requires_grad=True), None, torch.arange(4)
    with torch.no_grad():
        found = losses(*asked)
    with fast.enable():
        wanted = losses(*asked)
    assert found is not None
    assert wanted is not None
    assert found.grad_fn is None
    assert wanted.grad_fn is not None
    torch.testing.assert_close(found, wanted.detach())


def test_likelihoods_of_a_model_in_64_bits() -> None:
    found = log_likelihoods(gpt().double(), [[1, 2]], [[3, 4], [5, 6]])
    wanted = log_likelihoods(gpt(), [[1, 2]], [[3, 4], [5, 6]])
    torch.testing.assert_close(found.float(), wanted)


# ---- padding -----------------------------------------------------------------------------------


def test_the_memory_of_a_recurrent_model_ends_with_the_last_word() -> None:
    backbone = awd_lstm()
    model, objective = LanguageModel(backbone, NextWord(backbone.token)), NextToken(carry=True)
    padded = Batch.of(*pad_rows([[1, 2, 3, 4, 5, 6, 7], [1, 2, 3]]))
    alone = Batch.of(torch.tensor([[1, 2, 3]]))
    kept = [objective(model, batch, chance(batch)).memory for batch in (padded, alone)]
    assert kept[0] is not None
    assert kept[1] is not None
    for both, one in zip(kept[0].layers[0], kept[1].layers[0], strict=True):
        torch.testing.assert_close(both[1], one[0])


def test_a_learned_reward_depends_on_its_row_alone() -> None:
    pair, alone = answer_rows([[1, 2], [1, 2]], [[3, 4], [5]]), answer_rows([[1, 2]], [[5]])
    for model in (gpt(8, dropout=0.5), bert()):
        model.reward = Label(8, 1, pooled=False)
        model.train()
        found = [learned_rewards(model, batch)[-1] for batch in (pair, alone, pair)]
        assert found[0] == found[2]
        torch.testing.assert_close(found[0], found[1])
        assert model.training
    assert learned_rewards(model, alone, position="first") != found[1]
    with pytest.raises(ValueError, match="GPT has read one word at the first position"):
        learned_rewards(gpt(), alone, position="first")
    with pytest.raises(ValueError, match="position is 'end': choose first or last"):
        learned_rewards(model, alone, position="end")  # type: ignore[arg-type]


def test_a_learned_reward_is_the_one_that_was_learned() -> None:
    """Also of a model that tells prompts from answers by their segments."""
    pair, model = answer_rows([[1, 2], [1, 2]], [[3, 4], [5]]), bert().eval()
    model.reward = Label(8, 1, pooled=False)
    chosen, other = learned_rewards(model, pair, position="first")
    loss = BradleyTerry(position="first")(model, pair, chance(pair)).loss
    torch.testing.assert_close(loss, F.softplus(other - chosen))


def test_a_label_and_penalties_at_once() -> None:
    backbone = awd_lstm()
    model = Classifier(backbone, Label(8, 2, pooled=False))
    model.words = NextWord(backbone.token)
    batch = rows(3, labels=torch.tensor([0, 1, 1]))
    words = NextToken(head="words", ar=2.0, tar=1.0)
    found = Both(parts=(Labels(position="last"), words))(model, batch, chance(batch))
    alone = words(model, batch, chance(batch))
    for name in ("word", "ar", "tar"):
        torch.testing.assert_close(found.metrics[name], alone.metrics[name])


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: Labels(position="frist"),
            "choose first, last, pooled or each",
        ),  # type: ignore[arg-type]
        (lambda: Similarity(position="pooled"), "position is 'pooled': choose first or last"),
        (lambda: Reinforce(baseline="rloo"), "baseline is 'rloo': choose none or leave one out"),  # type: ignore[arg-type]
        (lambda: GRPO(kl="los"), "kl is 'los': choose loss or reward"),  # type: ignore[arg-type]
        (
            lambda: gpt(8, activation="swish"),
            "'swish': choose gelu, gelu_tanh or relu",
        ),
        (lambda: gpt(8, inner=0), "inner is 0: give a whole number from 1"),
        (lambda: AdaptiveEmbedding(50, 8, (10, 20), shrink=0), "shrink is 0"),
        (lambda: AdaptiveEmbedding(50, 8, (10, 20, 30), shrink=4), "give fewer cutoffs"),
    ],
)
def test_a_choice_that_nobody_knows_is_refused(made: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made()


@pytest.mark.parametrize(
    ("model", "objective", "message"),
    [
        (gpt, NextToken(head="words"), "no head 'words': it has head"),
        (lambda: gpt().backbone, NextToken(), "a bare GPT: put a head on it"),
        (lambda: LanguageModel(bag := Bag(BagConfig(20, 8)), NextWord(bag.token)),
         NextToken(carry=True), "Bag remembers nothing: give carry=False"),
        (gpt, Permutation(vocabulary=Vocabulary(20)), "GPT has no query stream, .*: use XLNet"),
        (gpt, SkipGram(counts=torch.ones(20)), "GPT does not tell words from noise: use"),
        (gpt, Translation(begin=1), "GPT reads no source: give an encoder-decoder"),
        (lambda: gpt().backbone, CBOW(counts=torch.ones(20)), "a bare GPT: put a head on it"),
    ],
)  # fmt: skip
def test_a_model_that_lacks_what_is_asked_is_refused(
    model: Any, objective: Objective, message: str
) -> None:
    batch = dataclasses.replace(rows(), labels=rows().tokens)
    with pytest.raises(ValueError, match=message):
        objective(model(), batch, chance(batch))


def test_a_head_of_several_scores_is_refused_where_one_is_needed() -> None:
    model = gpt()
    model.reward, model.value = (Label(model.backbone.width, n, pooled=False) for n in (2, 3))
    pair, choices = answer_rows([[1], [1]], [[2], [3]]), rows(4, labels=torch.zeros(4).long())
    asked = rollouts(model)
    three = Classifier(model.backbone, Label(model.backbone.width, 3))
    labels = Labels(position="last", choices=2)
    for ask, said in (
        (lambda: learned_rewards(model, pair), "'reward' gives 2 scores where one is"),
        (lambda: BradleyTerry()(model, pair, chance(pair)), "'reward' gives 2 scores"),
        (lambda: labels(three, choices, chance(choices)), "'head' gives 3 scores"),
        (lambda: asked.at(0), "'value' gives 3 scores"),
    ):
        with pytest.raises(ValueError, match=said):
            ask()
    model.value = Label(model.backbone.width, 1, pooled=False)
    drawn = asked.at(0)
    model.value = Label(model.backbone.width, 3, pooled=False)
    with pytest.raises(ValueError, match="'value' gives 3 scores"):
        PPO(group=4)(model, drawn, chance(drawn))


def test_a_model_that_sees_the_answer_cannot_score_it() -> None:
    with pytest.raises(ValueError, match="BERT would see the answer"):
        answer_log_probs(bert(), answer_rows([[1, 2]], [[3, 4]]))


def test_states_that_stand_for_no_word_are_not_compared() -> None:
    with pytest.raises(ValueError, match="Translation has no state for each word"):
        Distillation(task=Translation(begin=0), teacher=gpt())
    Distillation(task=Translation(begin=0), teacher=gpt(), cosine=0)


def test_words_that_were_never_spelled_cannot_be_read() -> None:
    sizes = ELMoConfig(3, longest=6, letter_width=4, kernels=((1, 4),), width=4, inner=8, layers=1)
    with pytest.raises(ValueError, match=r"build it with ELMo\(config, words\)"):
        ELMo(sizes)(torch.tensor([[0, 1, 2]]))
    spelled = ELMo(sizes, ["a", "bc", "d"])
    loaded = ELMo(sizes)
    loaded.load_state_dict(spelled.state_dict())
    tokens = torch.tensor([[0, 1, 2]])
    assert torch.equal(loaded.eval()(tokens).hidden, spelled.eval()(tokens).hidden)


def test_batches_are_a_corpus() -> None:
    with pytest.raises(TypeError, match="batches is a list: give a corpus"):
        Trainer(gpt(), NextToken(), [rows()], Plan(steps=1))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Label, Pooled, Span, NextWord])
def test_a_head_of_another_task_is_refused(kind: Any) -> None:
    body, batch = gpt().backbone, rows(2)
    model = Classifier(body, {
        Label: Label(body.width, 2), Pooled: Pooled(body.width, 2), Span: Span(body.width),
        NextWord: NextWord(body.token),
    }[kind])  # fmt: skip
    one, each = torch.tensor([0, 1]), torch.zeros_like(batch.tokens)
    for objective, labels, right in (
        (Labels(position="last"), one, Label),
        (Labels(position="each"), each, Label),
        (Similarity(position="last"), one[:1].expand(2), Label),
        (Labels(position="pooled"), one, Pooled),
        (SpanEnds(), torch.stack([one, one]), Span),
    ):
        given = dataclasses.replace(batch, labels=labels)
        if kind is right:
            assert objective(model, given, chance(given)).loss.isfinite()
            continue
        says = f"is a {kind.__name__}: {type(objective).__name__} needs a {right.__name__}, or"
        with pytest.raises(ValueError, match=says):
            objective(model, given, chance(given))


@pytest.mark.parametrize("bucketed", [True, False])
def test_a_last_batch_that_is_too_small_to_be_divided_is_found_at_once(bucketed: bool) -> None:
    texts = [f"word{i % 5} a b ." for i in range(41)]
    documents = from_documents(texts, labels=[str(i % 2) for i in range(41)])
    tokenizer = Tokenizer.words(texts)
    corpus = Examples(tokenize(documents, tokenizer), batch=8, length=16, bucketed=bucketed)
    sizes = [len(corpus.at(step)) for step in range(corpus.steps)]
    assert min(sizes) == corpus.fewest == (1 if bucketed else 8)
    body = GPT(GPTConfig(len(tokenizer), 8, 1, 2, 16, dropout=0.0))
    model, plan = Classifier(body, Label(8, 2, pooled=False)), Plan(steps=1, accumulate=2)
    if bucketed:
        for batches in (corpus, Stages((0, corpus))):
            with pytest.raises(ValueError, match="the smallest batch has 1 rows"):
                Trainer(model, Labels(position="last"), batches, plan)
    else:
        Trainer(model, Labels(position="last"), corpus, plan)


def test_a_document_of_one_token_predicts_nothing_and_training_goes_on() -> None:
    texts = ["a", "a b a b", "b a"]
    tokenizer = Tokenizer.words(texts)
    tokens = tokenize(from_documents(texts), tokenizer, end=False)
    corpus = Examples(tokens, batch=1, length=8, framed=False)
    assert min(corpus.at(step).tokens.shape[1] for step in range(3)) == 1
    torch.manual_seed(0)
    body = GPT(GPTConfig(len(tokenizer), 8, 1, 2, 16, dropout=0.0))
    model = LanguageModel(body, NextWord(body.token))
    reports = list(Trainer(model, NextToken(), corpus, Plan(steps=6)).run())
    losses_of = sorted(float(report.loss) for report in reports)
    assert losses_of[1] == 0.0 < losses_of[2]
    assert int(reports[-1].skipped) == 0
    assert evaluate(model, NextToken(), corpus).count == 4


def test_a_mask_of_keys_alone_serves_both_streams() -> None:
    torch.manual_seed(0)
    model, tokens = XLNet(XLNetConfig(20, 8, 1, 2)).eval(), rows(3).tokens
    asked = torch.tensor([[5, 1], [0, 7], [3, 4]])
    found = []
    for queries in (1, 8):
        mask = torch.ones(3, 1, queries, 8, dtype=torch.bool)
        found.append(model.two_streams(tokens, asked, mask=mask, query_mask=mask).query.hidden)
    torch.testing.assert_close(*found)


class Restarted:
    """Rows of which the first two begin anew at the second step."""

    def at(self, step: int) -> Batch:
        random = torch.Generator().manual_seed(step)
        fresh = torch.tensor([True, True, step == 0, step == 0])
        return Batch.of(torch.randint(0, 20, (4, 5), generator=random), fresh=fresh)


def test_parts_that_remember_unlike_lengths_are_saved(tmp_path: Path) -> None:
    def trainer(accumulate: int) -> Trainer:
        torch.manual_seed(0)
        body: Any = TransformerXL(TransformerXLConfig(20, 8, 1, 2, 5, memory=8, dropout=0.0))
        model = LanguageModel(body, NextWord(body.token))
        plan = Plan(steps=4, accumulate=accumulate, save_every=2, device="cpu", precision="float32")
        return Trainer(model, NextToken(carry=True), Restarted(), plan, progress=False)

    whole = [float(report.loss) for report in trainer(1).run()]
    run = trainer(2).resume(tmp_path)
    first = [float(next(run).loss) for _ in range(3)]
    run.close()
    rest = [float(report.loss) for report in trainer(2).resume(tmp_path)]
    assert first == pytest.approx(whole[:3], rel=1e-5)
    assert len(rest) == 2  # from the checkpoint after step 2
    assert rest == pytest.approx(whole[2:], rel=1e-5)


def test_both_directions_are_refused_where_they_meet() -> None:
    """The second layer reads both halves of the first, so the answer would be in the state."""
    given = Batch.of(torch.tensor([[4, 5, 6, 7]]))
    for layers in (1, 2):
        backbone = Recurrent(RecurrentConfig(9, 8, layers=layers, both_ways=True))
        model = LanguageModel(backbone, NextWord(backbone.token))
        if layers == 1:
            BothDirections()(model, given, Chance(0, 0, given.rows))
        else:
            with pytest.raises(ValueError, match="Recurrent mixes both directions"):
                BothDirections()(model, given, Chance(0, 0, given.rows))


def test_what_computes_its_loss_as_a_whole_stands_around_others() -> None:
    whole = Sum(parts=(NextToken(), Labels(position="last")))
    for build in (lambda: Both(parts=(NextToken(), whole)),
                  lambda: Distillation(task=whole, teacher=gpt(), cosine=0)):  # fmt: skip
        with pytest.raises(ValueError, match="Sum computes its loss as a whole"):
            build()
    with pytest.raises(ValueError, match="give the task carry=False"):
        Distillation(task=NextToken(carry=True), teacher=gpt())


def test_objectives_in_one_forward_pass_all_check_the_model() -> None:
    given = Batch.of(torch.tensor([[4, 5, 6, 7]]), labels=torch.tensor([1]))
    backbone = Recurrent(RecurrentConfig(9, 8, layers=2, both_ways=True))
    model = LanguageModel(backbone, Pooled(16, 2))
    model.words = NextWord(torch.nn.Embedding(9, 8))
    both = Both(parts=(Labels(position="pooled"), BothDirections(head="words")))
    with pytest.raises(ValueError, match="Recurrent mixes both directions"):
        both(model, given, Chance(0, 0, given.rows))
    with pytest.raises(ValueError, match="only the first objective remembers"):
        Both(parts=(Labels(), NextToken(carry=True)))
    with pytest.raises(ValueError, match="Permutation has states of its own"):
        Both(parts=(Permutation(vocabulary=Tokenizer.words(["a"]).vocabulary), Labels()))


@pytest.mark.parametrize("kind", [Both, Sum])
def test_only_the_first_of_several_objectives_remembers(kind: Any) -> None:
    again = NextToken(carry=True)
    first = Both(parts=(again, Labels()))
    for part in (again, first, Balanced(objective=again)):
        with pytest.raises(ValueError, match="only the first objective remembers"):
            kind(parts=(Labels(position="last"), part))
    assert kind(parts=(again, Labels())).remembers
    assert not kind(parts=(NextToken(), Labels())).remembers
    with pytest.raises(ValueError, match="give the task carry=False"):
        Distillation(task=first, teacher=gpt())


def test_a_loss_without_any_weight_is_refused() -> None:
    nothing = Outcome({"word": Term(torch.tensor(1.0), 1, weight=0.0)})
    with pytest.raises(ValueError, match="every part of the loss has the weight 0"):
        nothing.over({"word": 1})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Penalised(NextToken):
    """Predicts words, and measures what its targets do not count."""

    def terms(self, model: Any, states: Any, targets: Any) -> dict[str, Term]:
        return {**super().terms(model, states, targets), "l2": Term(torch.tensor(1.0), 1, 0.1)}


def test_a_term_that_the_targets_do_not_count_is_named() -> None:
    with pytest.raises(ValueError, match=r"do not count the term 'l2': .*counts=\{'l2': …\}"):
        evaluate(gpt(), Penalised(), [rows()])


@pytest.mark.parametrize("target", [-100, -1, 99])
def test_no_target_of_a_head_is_left_out(target: int) -> None:
    """As torch's cross entropy leaves out -100."""
    for model in (gpt(), bert()):
        head, hidden = model.head, torch.randn(2, model.backbone.width)
        asked = hidden, torch.tensor([3, target])
        with pytest.raises(IndexError, match=f"Target {target} is out of bounds"):
            WordHead.losses_N(head, *asked)  # type: ignore[arg-type]
        for how in (fast.enable(), nullcontext()):
            with how, pytest.raises((IndexError, RuntimeError), match="out of bounds"):
                head.losses_N(*asked)  # type: ignore[operator]


def test_a_head_that_gives_no_losses_of_words_is_named() -> None:
    model = LanguageModel(gpt().backbone, nn.Linear(8, 20))
    with pytest.raises(ValueError, match="'head' is a Linear, which has no losses_N: give NextW"):
        evaluate(model, NextToken(), [rows()])


class HC(NamedTuple):
    """The state of an LSTM."""

    h: Tensor
    c: Tensor


@dataclasses.dataclass(frozen=True)
class CellConfig:
    vocabulary: int = 20
    width: int = 8


class Cell(Backbone):
    """One LSTM cell, which remembers by the names of its parts."""

    config: CellConfig
    causal, attends, remembers, memory_length, summary = True, False, True, None, -1

    def __init__(self, config: CellConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.cell, self.blocks = nn.LSTMCell(config.width, config.width), nn.ModuleList()

    def forward(self, tokens_BT: Tensor, *, mask: Any = None, memory: Any = ()) -> States:
        x_BTD, outputs = self.token(tokens_BT), []
        zero_BD = x_BTD.new_zeros(len(x_BTD), self.width)
        state = memory[0] if memory else HC(zero_BD, zero_BD)
        for x_BD in x_BTD.unbind(dim=1):
            state = HC(*self.cell(x_BD, (state.h, state.c)))
            outputs.append(state.h)
        return States((x_BTD, torch.stack(outputs, dim=1)), (state,))


class Following:
    """Segments of which each goes on with the one before."""

    def at(self, step: int) -> Batch:
        random = torch.Generator().manual_seed(step)
        fresh = torch.tensor([step == 0, step in (0, 2)])
        return Batch.of(torch.randint(0, 20, (2, 5), generator=random), fresh=fresh)


def test_a_memory_whose_parts_have_names_keeps_them(tmp_path: Path) -> None:
    def trainer() -> Trainer:
        torch.manual_seed(0)
        body = Cell(CellConfig())
        model = LanguageModel(body, NextWord(body.token))
        plan = Plan(steps=4, rate=0.01, schedule="constant", save_every=2)
        return Trainer(model, NextToken(carry=True), Following(), plan)

    whole = [float(report.loss) for report in trainer().resume()]
    losses = []
    for report in trainer().resume(tmp_path):
        losses.append(float(report.loss))
        if report.step == 3:
            break
    saved = trainer()
    losses[2:] = [float(report.loss) for report in saved.resume(tmp_path)]
    assert losses == whole
    settings = Sampling(length=4)
    assert beam(saved.model, [1, 2], settings, beams=3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Own(Objective):
    """An objective of a reader's own."""

    made: Callable[[Batch], Any]

    def targets(self, batch: Batch, chance: Chance) -> Any:
        """Whatever was made."""
        return self.made(batch)


def by_hand(rows: Any, positions: Any, targets: Any) -> Callable[[Batch], Targets]:
    """Targets with predictions that nobody checked."""
    return lambda batch: Targets.of(batch, {"word": Predicted(rows, positions, targets)})


two = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda batch: None, "what `targets` of the objective gave is of type NoneType"),
        (lambda batch: Targets.of(None, {}), "`inputs` is of type NoneType: give a Batch"),
        (lambda batch: Targets.of(batch, None), "`predicted` is of type NoneType"),
        (lambda batch: Targets.of(batch, {"word": None}), "the term 'word' is of type NoneType"),
        (
            lambda batch: Predicted.where(batch.real, batch.tokens[:, 1:]),
            r"is bool of shape \[2, 4\], and the answers are int64 of shape \[2, 3\]",
        ),
        (lambda batch: Predicted.where(None, batch.tokens), "predicted is a NoneType, and the"),
        (lambda batch: Predicted.where(batch.real, None), "the answers are a NoneType: give"),
        (lambda batch: Predicted.where(batch.real.float(), batch.tokens), "is float32 of shape"),
        (by_hand(two, two, two[:1]), r"targets_N int64 of shape \[1\]: give three tensors"),
        (by_hand(two, two, two / 2), r"targets_N float32 of shape \[2\]: give three tensors"),
        (by_hand(two, two, [0, 1]), "targets_N a list: give three tensors"),
        (by_hand(two, two[:, None], two), r"positions_N int64 of shape \[2, 1\]"),
        (by_hand(two, two + 3, two), "position 4 is not in the text: it has 0 to 3"),
        (by_hand(two, two - 1, two), "position -1 is not in the text: it has 0 to 3"),
        (by_hand(two + 1, two, two), "row 2 is not in the batch: it has 0 to 1"),
    ],
)
@pytest.mark.parametrize("use", ["train", "evaluate"])
def test_targets_that_are_none_say_so_in_one_line(made: Any, message: str, use: str) -> None:
    model, given, objective = gpt(), Batch.of(torch.ones(2, 4).long()), Own(made=made)
    trainer = Trainer(model, objective, Always(given), Plan(steps=1))
    uses = {"train": trainer.train_step, "evaluate": lambda: evaluate(model, objective, [given])}
    with pytest.raises((TypeError, ValueError), match=message):
        uses[use]()


def test_predictions_that_nobody_counted_count_themselves() -> None:
    usual, batch = NextToken(), Batch.of(torch.arange(8).view(2, 4))
    targets = usual.targets(batch, chance(batch))
    raw = Targets(
        targets.inputs, targets.predicted, {}, padded=False, fresh=targets.fresh, causal=True
    )
    model = gpt().eval()
    assert torch.equal(usual.loss(model, raw).loss, usual.loss(model, targets).loss)


def test_steps_in_time_are_weighed_where_a_model_gives_its_states_before_dropout() -> None:
    batch = Batch.of(torch.arange(8).view(2, 4))
    with pytest.raises(ValueError, match=r"GPT does not give its last states .*tar=0"):
        NextToken(tar=1.0)(gpt(), batch, chance(batch))
    assert "ar" in NextToken(ar=1.0)(gpt(), batch, chance(batch)).terms
