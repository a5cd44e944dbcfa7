"""Tiny releases with random weights, written by the reference implementation, for the tests."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.blocks import Classifier, LanguageModel
from labkit.heads import Span

_BERT = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
_GPT = {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40}
_DISTIL = {
    "vocab_size": 61,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": 40,
}
_XLNET = {"vocab_size": 61, "d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24, "mem_len": 0}
_ROBERTA = {**_BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_ALBERT = {**_BERT, "embedding_size": 8}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "OpenAIGPTModel": ("OpenAIGPTConfig", _GPT),
    "OpenAIGPTLMHeadModel": ("OpenAIGPTConfig", _GPT),
    "GPT2Model": ("GPT2Config", _GPT),
    "GPT2LMHeadModel": ("GPT2Config", _GPT),
    "BertModel": ("BertConfig", _BERT),
    "BertForMaskedLM": ("BertConfig", _BERT),
    "BertForPreTraining": ("BertConfig", _BERT),
    "BertForSequenceClassification": ("BertConfig", {**_BERT, "num_labels": 3}),
    "BertForQuestionAnswering": ("BertConfig", _BERT),
    "RobertaModel": ("RobertaConfig", _ROBERTA),
    "RobertaForMaskedLM": ("RobertaConfig", _ROBERTA),
    "RobertaForSequenceClassification": ("RobertaConfig", {**_ROBERTA, "num_labels": 3}),
    "RobertaForQuestionAnswering": ("RobertaConfig", _ROBERTA),
    "AlbertModel": ("AlbertConfig", _ALBERT),
    "AlbertForMaskedLM": ("AlbertConfig", _ALBERT),
    "AlbertForPreTraining": ("AlbertConfig", _ALBERT),
    "AlbertForSequenceClassification": ("AlbertConfig", {**_ALBERT, "num_labels": 3}),
    "AlbertForQuestionAnswering": ("AlbertConfig", _ALBERT),
    "DistilBertModel": ("DistilBertConfig", _DISTIL),
    "DistilBertForMaskedLM": ("DistilBertConfig", _DISTIL),
    "DistilBertForSequenceClassification": ("DistilBertConfig", {**_DISTIL, "num_labels": 3}),
    "DistilBertForQuestionAnswering": ("DistilBertConfig", _DISTIL),
    "XLNetModel": ("XLNetConfig", _XLNET),
    "XLNetLMHeadModel": ("XLNetConfig", _XLNET),
    "XLNetForSequenceClassification": ("XLNetConfig", {**_XLNET, "num_labels": 3}),
}
"""What the reference calls each model: the config it takes, and its sizes."""


def reference(name: str, **changes: Any) -> Any:
    """A tiny reference model with weights that no initialisation would draw."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config_name, sizes = CASES[name]
    torch.manual_seed(7)
    model = getattr(transformers, name)(getattr(transformers, config_name)(**{**sizes, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms too: a forgotten one must show.
            parameter.normal_(std=0.3)
    return model.eval()


def write_release(name: str, folder: Path, **changes: Any) -> Any:
    """The release of a tiny reference model, and the model."""
    model = reference(name, **changes)
    model.save_pretrained(folder)
    return model


def answers(model: Any, tokens_BT: Tensor) -> list[Tensor]:
    """What a reference model says: its head's scores, or its states."""
    with torch.no_grad():
        said = model(tokens_BT)
    if hasattr(said, "start_logits"):
        return [torch.stack([said.start_logits, said.end_logits], dim=-1)]
    if hasattr(said, "prediction_logits"):
        other = getattr(said, "seq_relationship_logits", getattr(said, "sop_logits", None))
        return [said.prediction_logits, other]
    return [said.logits if hasattr(said, "logits") else said.last_hidden_state]


def our_answers(model: Any, tokens_BT: Tensor) -> list[Tensor]:
    """The same from ours."""
    with torch.no_grad():
        if isinstance(model, LanguageModel):
            hidden_BTD = model.backbone(tokens_BT).hidden
            words = [model.head(hidden_BTD)]
            return words + ([model.pair(hidden_BTD[:, 0])] if hasattr(model, "pair") else [])
        if isinstance(model, Classifier) and isinstance(model.head, Span):
            return [model(tokens_BT)]
        if isinstance(model, Classifier):
            # XLNet answers from the last position, where its releases put the mark of a text.
            place = -1 if type(model.backbone).__name__ == "XLNet" else 0
            return [model.head(model.backbone(tokens_BT).hidden[:, place])]
        return [model(tokens_BT).hidden]
