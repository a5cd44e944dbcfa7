"""Wrong tokens and wrong masks: one line that says what to give, from every model and objective."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from pairings import PAIRINGS, Pairing
from pairings import V as WORDS
from torch import Tensor, nn

from labkit import fast, tensor_checks, trainer
from labkit.alignment.preferences import DPO, answer_rows
from labkit.attention import Attention, RelativeAttention, attend, distances, sinusoids
from labkit.blocks import Backbone, LanguageModel
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import MaskedWord, NextWord
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.models.bert import BERT, BERTConfig
from labkit.models.elmo import ELMo, ELMoConfig, WeightedSum
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.rnn import (
    Bag,
    BagConfig,
    Convolutions,
    ConvolutionsConfig,
    Recurrent,
    RecurrentConfig,
)
from labkit.models.transformer import Transformer, TransformerConfig
from labkit.models.transformer_xl import AdaptiveEmbedding, TransformerXL, TransformerXLConfig
from labkit.models.word_vectors import WordVectors, WordVectorsConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import MaskedToken, NextToken, Permutation
from labkit.text.tokenizers import Tokenizer, Vocabulary
from labkit.transfer.mixed import Mixed

V = 12
SIZES: dict[str, Any] = {"width": 8, "layers": 2, "heads": 2, "dropout": 0.0}
ATTEND: dict[str, Callable[[], Backbone]] = {
    "GPT": lambda: GPT(GPTConfig(V, context=16, **SIZES)),
    "banded": lambda: GPT(GPTConfig(V, context=16, band=2, **SIZES)),
    "BERT": lambda: BERT(BERTConfig(V, context=16, **SIZES)),
    "Transformer-XL": lambda: TransformerXL(TransformerXLConfig(V, memory=4, **SIZES)),
    "XLNet": lambda: XLNet(XLNetConfig(V, memory=4, **SIZES)),
    "Transformer": lambda: Transformer(TransformerConfig(V, inner=16, **SIZES)),
    "mix of BERT": lambda: Mixed(ATTEND["BERT"](), WeightedSum(3)),
}
ELMO: dict[str, Any] = {"longest": 6, "kernels": ((1, 4), (2, 8)), "width": 8, "inner": 12}
OTHERS: dict[str, Callable[[], Backbone]] = {
    "AWD-LSTM": lambda: AWDLSTM(AWDLSTMConfig(V, width=8, inner=12, layers=2)),
    "ELMo": lambda: ELMo(ELMoConfig(V, **ELMO), [f"w{i}" for i in range(V)]),
    "LSTM": lambda: Recurrent(RecurrentConfig(V, width=8)),
    "GRU both ways": lambda: Recurrent(RecurrentConfig(V, width=8, cell="gru", both_ways=True)),
    "bag": lambda: Bag(BagConfig(V, width=8)),
    "convolutions": lambda: Convolutions(ConvolutionsConfig(V, width=8, channels=4)),
    "word vectors": lambda: WordVectors(WordVectorsConfig(V, width=8)),
}
MODELS = ATTEND | OTHERS


def run(name: str, tokens_BT: Tensor, **inputs: Any) -> Any:
    """The states of a small model in evaluation mode."""
    torch.manual_seed(0)
    source = {"source_BK": torch.ones(len(tokens_BT) or 1, 2).long()}
    return MODELS[name]().eval()(tokens_BT, **inputs, **(source if name == "Transformer" else {}))


def one_line(error: pytest.ExceptionInfo[ValueError], *parts: str) -> None:
    """The message is one line with all of these parts."""
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("wrong", [-1, V, 10**9])
def test_tokens_that_are_not_in_the_vocabulary(name: str, wrong: int) -> None:
    tokens_BT = torch.arange(8).view(2, 4)
    run(name, tokens_BT)
    tokens_BT[1, 2] = wrong
    with pytest.raises(ValueError, match="vocabulary") as error:
        run(name, tokens_BT)
    one_line(error, f"token {wrong} is not in the vocabulary", f"0 to {V - 1}")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0), (3,), (1, 2, 3)], ids=str)
def test_tables_that_are_no_rows_of_tokens(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="give") as error:
        run(name, torch.zeros(shape, dtype=torch.long))
    one_line(error, str(shape), "[B, T]", "at least one row of one token")


@pytest.mark.parametrize("name", MODELS)
def test_tokens_that_are_no_whole_numbers(name: str) -> None:
    with pytest.raises(ValueError, match="give") as error:
        run(name, torch.ones(2, 4))
    one_line(error, "float32", "whole numbers")
    with pytest.raises(ValueError, match=r"the tokens are a list: give a tensor \[B, T\]"):
        run(name, [[1, 2]])


@pytest.mark.parametrize("name", ATTEND)
@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.uint8], ids=str)
def test_masks_that_are_not_boolean(name: str, kind: torch.dtype) -> None:
    """As an additive bias, 0 and 1 would let the future through."""
    with pytest.raises(ValueError, match="give") as error:
        run(name, torch.ones(2, 4).long(), mask=torch.ones(4, 4).tril().to(kind))
    one_line(error, str(kind).removeprefix("torch."), "boolean", "True takes part", "(2, 1, 4, ")
    with pytest.raises(ValueError, match="the mask is a list: give a boolean tensor"):
        run(name, torch.ones(2, 4).long(), mask=[[True]])


@pytest.mark.parametrize("name", ATTEND)
@pytest.mark.parametrize(
    "shape", [(3, 3), (5, 5), (4, 3), (3, 1, 4, 4), (2, 4), (2, 4, 4), (1, 2, 1, 4, 4)], ids=str
)
def test_masks_that_do_not_broadcast(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="give") as error:
        run(name, torch.ones(2, 4).long(), mask=torch.ones(shape, dtype=torch.bool))
    one_line(error, str(shape), "broadcasts to (2, ", "4")


@pytest.mark.parametrize("name", ATTEND)
@pytest.mark.parametrize("shape", [(4, 4), (1, 4), (4, 1), (), (2, 1, 1, 4), (1, 1, 4, 4)], ids=str)
def test_masks_that_broadcast(name: str, shape: tuple[int, ...]) -> None:
    tokens_BT, mask = torch.arange(8).view(2, 4), torch.rand(shape) < 0.7
    whole = mask.expand(2, 1, 4, 4) if mask.dim() != 3 else mask
    one, other = run(name, tokens_BT, mask=mask), run(name, tokens_BT, mask=whole)
    torch.testing.assert_close(one.hidden, other.hidden)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 1, 1, 4),
        torch.ones(4, 4).bool().tril(),
        torch.ones(2, 1, 1, 3).bool(),
        torch.ones(3, 1, 1, 4).bool(),
    ],
    ids=["float", "causal", "short", "rows"],
)
def test_masks_of_models_without_attention(name: str, mask: Tensor) -> None:
    with pytest.raises(ValueError, match="give") as error:
        run(name, torch.ones(2, 4).long(), mask=mask)
    one_line(error, "only leaves out padding", "(2, 1, 1, 4)", str(tuple(mask.shape)))


@pytest.mark.parametrize("faster", [False, True])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
    "mask",
    [torch.ones(3, 5), torch.ones(3, 4).bool(), torch.ones(2, 3, 5).bool()],
    ids=["float", "short", "no heads"],
)
def test_masks_of_attention(relative: bool, faster: bool, mask: Tensor) -> None:
    x_BQD, source_BKD = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    module = RelativeAttention(8, 2) if relative else Attention(8, 2)
    extra = {"r_RD": sinusoids(distances(3, 5), 8)} if relative else {}
    with (
        pytest.raises(ValueError, match="give") as error,
        fast.enable() if faster else nullcontext(),
    ):
        module(x_BQD, source_BKD, mask=mask, **extra)
    one_line(error, "boolean", "(2, 1, 3, 5)")


def test_masks_of_the_function() -> None:
    q_BHQE = torch.randn(1, 1, 4, 2)
    with pytest.raises(ValueError, match=re.escape("broadcasts to (1, 1, 4, 4)")):
        attend(q_BHQE, q_BHQE, q_BHQE, mask=torch.ones(4, 4).tril())


@pytest.mark.parametrize("which", ["mask", "query_mask"])
@pytest.mark.parametrize("wrong", [torch.ones(4, 4), torch.ones(3, 1, 4, 4).bool()], ids=str)
def test_masks_of_two_streams(which: str, wrong: Tensor) -> None:
    model, whole = ATTEND["XLNet"](), torch.ones(2, 1, 4, 4, dtype=torch.bool)
    assert isinstance(model, XLNet)
    masks = {"mask": whole, "query_mask": whole} | {which: wrong}
    with pytest.raises(ValueError, match="give") as error:
        model.two_streams(torch.ones(2, 4).long(), torch.zeros(2, 1).long(), **masks)
    one_line(error, "boolean", "(2, 1, 4, ", which)


def test_two_streams_know_their_words_too() -> None:
    model, whole = ATTEND["XLNet"](), torch.ones(1, 1, 2, 2, dtype=torch.bool)
    assert isinstance(model, XLNet)
    with pytest.raises(ValueError, match="token 99 is not in the vocabulary"):
        model.two_streams(
            torch.tensor([[1, 99]]), torch.zeros(1, 1).long(), mask=whole, query_mask=whole
        )


def test_the_source_of_a_translation_is_checked() -> None:
    model = ATTEND["Transformer"]()
    with pytest.raises(ValueError, match="token 99 is not in the vocabulary"):
        model(torch.ones(1, 2).long(), source_BK=torch.tensor([[1, 99]]))


@pytest.mark.parametrize("wrong", [-1, V])
def test_adaptive_embeddings_have_no_vector_for_unknown_words(wrong: int) -> None:
    embedding = AdaptiveEmbedding(V, 8, (4, 8), shrink=2)
    assert embedding(torch.arange(V)[None]).abs().sum(dim=-1).bool().all()
    with pytest.raises(ValueError, match=f"token {wrong} is not in the vocabulary"):
        embedding(torch.tensor([[1, wrong]]))


VOCABULARY = Vocabulary(V, pad=0, mask=1, special=(0, 1))


@pytest.mark.parametrize(
    "objective",
    [NextToken(), MaskedToken(vocabulary=VOCABULARY), Permutation(vocabulary=VOCABULARY)],
    ids=lambda objective: type(objective).__name__,
)
def test_batches_of_objectives(objective: Any) -> None:
    tokens_BT = torch.full((2, 4), 5)
    for real in (torch.ones(2, 4), torch.ones(2, 3).bool(), torch.ones(4).bool()):
        with pytest.raises(ValueError, match="give") as error:
            objective.targets(Batch.of(tokens_BT, real), Chance(0, 0, torch.arange(2)))
        one_line(error, "boolean", "[2, 4]", str(list(real.shape)))
    for empty in (tokens_BT[:0], tokens_BT[:, :0]):
        with pytest.raises(ValueError, match="at least one row of"):
            objective.targets(Batch.of(empty), Chance(0, 0, torch.arange(2)))


def test_hidden_words_are_words_of_the_vocabulary() -> None:
    batch = Batch.of(torch.tensor([[5, V]]))
    with pytest.raises(ValueError, match=f"token {V} is not in the vocabulary"):
        MaskedToken(vocabulary=VOCABULARY).targets(batch, Chance(0, 0, torch.arange(1)))


def test_tokens_are_checked_before_they_are_sent_to_another_device() -> None:
    """A device without numbers stands in for a GPU."""
    model, objective, device = LanguageModel(ATTEND["GPT"](), nn.Identity()), NextToken(), "meta"
    for token, right in ((V - 1, True), (V, False)):
        batch = Batch.of(torch.tensor([[5, token, 5]]))
        targets = objective.targets(batch, Chance(0, 0, batch.rows))
        if right:
            assert trainer.on_device(targets, model, torch.device(device)).inputs.tokens.is_meta
        else:
            with pytest.raises(ValueError, match=f"token {V} is not in the vocabulary"):
                trainer.on_device(targets, model, torch.device(device))


def test_a_gpu_stops_at_tokens_that_are_not_in_the_vocabulary() -> None:
    """On a CPU the assertion does not wait for anything, so that its answer comes at once."""
    tensor_checks.check_without_waiting(torch.tensor([[0, V - 1]]), V)
    tensor_checks.check_without_waiting(torch.tensor([[0, 10**9]]), 0)
    for wrong, vocabulary in ((-1, V), (V, V), (-1, 0)):
        why = f"not in the vocabulary of {vocabulary}" if vocabulary else "a token is below 0"
        with pytest.raises(RuntimeError, match=why):
            tensor_checks.check_without_waiting(torch.tensor([[wrong, 3]]), vocabulary)


def test_nothing_is_looked_at_in_a_compiled_graph() -> None:
    """A model inside a compiled function is one graph: no number is read back."""
    model = ATTEND["BERT"]()
    whole = nn.Sequential(model)
    graph = torch.compile(lambda tokens: whole(tokens).hidden, backend="eager", fullgraph=True)
    tokens_BT = torch.arange(8).view(2, 4)
    assert graph(tokens_BT).equal(model(tokens_BT).hidden)


# ---- every objective with every model that suits it

PAIRS = pytest.mark.parametrize("pairing", PAIRINGS, ids=lambda pairing: pairing.name)


def refused(pairing: Pairing, *wrong: Batch) -> None:
    """Each of these batches is refused in one line of ours."""
    model, objective = pairing.model(), pairing.objective()
    for batch in wrong:
        with pytest.raises(ValueError, match=r"give|use|number them|make|put") as error:
            objective(model, batch, Chance(0, 0, batch.rows))
        one_line(error)


@PAIRS
def test_every_objective_refuses_words_that_are_not_in_the_vocabulary(pairing: Pairing) -> None:
    batch, wrong = pairing.batch(), []
    # The last word of a row is not read where the next word is predicted: it is an answer only.
    for column in (0, 3, batch.tokens.shape[1] - 1):
        for token in (-100, -1, WORDS, 10**9):
            tokens = batch.tokens.clone()
            tokens[0, column] = token
            wrong.append(replace(batch, tokens=tokens))
    refused(pairing, *wrong)


LABELLED = [
    pairing
    for pairing in PAIRINGS
    if re.search("label|tags|choices|sentence|order|L3", pairing.name)
]


@pytest.mark.parametrize("pairing", LABELLED, ids=lambda pairing: pairing.name)
def test_every_objective_refuses_labels_that_its_head_does_not_know(pairing: Pairing) -> None:
    batch = pairing.batch()
    labels = batch.labels
    assert labels is not None
    high = torch.where(labels >= 0, 7, labels)
    refused(pairing, *(replace(batch, labels=each) for each in (high, labels.double(), labels > 0)))


@PAIRS
def test_every_objective_refuses_a_batch_of_nothing(pairing: Pairing) -> None:
    batch = pairing.batch()
    empty = batch[:0]
    narrow = {
        name: table[:, :0]
        for name, table in vars(batch).items()
        if table is not None and table.dim() == 2
    }
    refused(pairing, empty, replace(batch, **narrow))


@pytest.mark.parametrize("name", ["real", "segments", "documents", "words"])
@pytest.mark.parametrize(
    "change",
    [Tensor.double, lambda t: t[:, :-1], lambda t: t[:1], lambda t: t[:, None]],
    ids=["float", "short", "one row", "three axes"],
)
def test_tables_of_a_batch_are_as_large_as_its_tokens(
    name: str, change: Callable[[Tensor], Tensor]
) -> None:
    """Of another size they would be compared with other words, or broadcast in silence."""
    tokens_BT = torch.full((2, 4), 5)
    right = torch.ones_like(tokens_BT, dtype=torch.bool if name == "real" else torch.long)
    whole = replace(Batch.of(tokens_BT), **{name: right})
    with pytest.raises(ValueError, match=rf"{name} is .* of the shape \[2, 4\]") as error:
        replace(whole, **{name: change(right)})
    one_line(error)


@pytest.mark.parametrize("segments", [-1, 2])
def test_segments_that_a_model_does_not_have(segments: int) -> None:
    model, tokens_BT = ATTEND["BERT"](), torch.ones(1, 3).long()
    with pytest.raises(ValueError, match=f"segment {segments} is not in the model") as error:
        model(tokens_BT, segments_BT=torch.tensor([[0, 1, segments]]))
    one_line(error)
    for name in ("BERT", "XLNet"):
        with pytest.raises(ValueError, match=r"give a whole number for each token, \(1, 3\)"):
            ATTEND[name]()(tokens_BT, segments_BT=torch.zeros(1, 2).long())


def test_pairs_of_answers_are_pairs() -> None:
    def loss(batch: Batch) -> None:
        reference = nn.Module()
        DPO(reference=reference).targets(batch, Chance(0, 0, batch.rows))

    prompts, answers = [[1, 2], [1, 2]], [[3], [4, 5]]
    loss(answer_rows(prompts, answers))
    with pytest.raises(ValueError, match="1 rows are not pairs"):
        loss(answer_rows(prompts[:1], answers[:1]))
    for label in (float("nan"), -0.5, 2.0):
        with pytest.raises(ValueError, match="give the chance that the first is preferred"):
            loss(answer_rows(prompts, answers, labels=torch.tensor([label, 0.0])))
    for labels in (torch.ones(2, 1), torch.zeros(2, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"labels are .*: give a float for each of the 2 rows"):
            loss(answer_rows(prompts, answers, labels=labels))
    for wrong in (([], []), ([[]], [[1]]), ([[1]], [[2], [3]])):
        with pytest.raises(ValueError, match="give an answer to each prompt"):
            answer_rows(*wrong)


@pytest.mark.parametrize("head", [NextWord, MaskedWord])
def test_a_head_for_words_refuses_an_embedding_without_one_table(head: Callable[..., Any]) -> None:
    adaptive = TransformerXL(TransformerXLConfig(V, cutoffs=(4,), **SIZES))
    for model, kind in ((OTHERS["ELMo"](), "CharacterCNN"), (adaptive, "AdaptiveEmbedding")):
        with pytest.raises(TypeError, match=f"a {kind} has no single table .* AdaptiveWord"):
            head(model.token)


@pytest.mark.parametrize("objective", [MaskedToken, Permutation])
def test_a_tokenizer_is_no_vocabulary(objective: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"of type Tokenizer: give tokenizer\.vocabulary"):
        objective(vocabulary=Tokenizer.words(["the king"]))
