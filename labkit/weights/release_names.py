"""What the public releases call the tensors and the sizes that labkit calls by the papers' words.

A row says: our tensor, the release's tensors that it is made of, and how they lie in memory.  Rows
are used in both directions, bit for bit.  `{i}` stands for the number of a layer, `{t}` for
`weight` and `bias`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

LAYOUTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "same": lambda ours, heads: ours,
    # GPT multiplies from the right.
    "transposed": lambda ours, heads: ours.t(),
    # XLNet keeps heads apart: [D, H, E] for what goes in and for what comes out.
    "into heads": lambda ours, heads: ours.t().unflatten(1, (heads, -1)),
    "out of heads": lambda ours, heads: ours.unflatten(1, (heads, -1)),
    "vector": lambda ours, heads: ours[None, None],
}
"""How a tensor of ours lies in a release, given the number of heads."""


class Row(NamedTuple):
    """One tensor of ours, and the tensors of the release that are stacked in it."""

    ours: str
    theirs: tuple[str, ...]
    layout: str = "same"

    def views(self, tensor: Tensor, heads: int) -> list[Tensor]:
        """The release's tensors, in the order of `theirs`: to write into one is to write ours."""
        parts = tensor.chunk(len(self.theirs))
        return [LAYOUTS[self.layout](part, heads) for part in parts]


def rows(ours: str, *theirs: str, layout: str = "same") -> list[Row]:
    """The rows of one line of a table: two where the line stands for weight and bias."""
    kinds = ("weight", "bias") if "{t}" in ours else ("",)
    found = []
    for kind in kinds:
        names = [name.replace("{t}", kind) for name in (ours, *theirs)]
        found.append(Row(names[0], tuple(names[1:]), "same" if kind == "bias" else layout))
    return found


@dataclass(frozen=True)
class Release:
    """How one family is released.  Names of the backbone follow `prefix`, those of heads do not."""

    prefix: str
    backbone: list[Row]
    words: list[Row]
    """The head for words; its matrix, tied to the embedding, is not listed."""
    label: list[Row]
    """The head for a label."""
    sizes: Mapping[str, str]
    """Field of our config: key of config.json."""
    fixed: Mapping[str, Any]
    """Fields of our config that are the same in every release of the family."""
    architectures: Mapping[str, str]
    """What a release calls the model with these heads."""
    only: Mapping[str, tuple[Any, ...]]
    """What config.json may say where our models leave no other choice; the first is written."""
    dropouts: tuple[str, ...] = ()
    """Where else config.json says what our models have as one dropout."""
    copies: tuple[str, ...] = ()
    """Names under which releases store a tensor a second time."""
    only_label: str = ""
    """The head for labels, where it is called `classifier` when it is the only head."""

    def rows(self, layers: int) -> Iterator[Row]:
        """The rows of the backbone with the numbers of its layers filled in."""
        for each in self.backbone:
            for i in range(layers if "{i}" in each.ours else 1):
                names = (name.replace("{i}", str(i)) for name in each.theirs)
                yield Row(each.ours.replace("{i}", str(i)), tuple(names), each.layout)

    def config(self, released: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of our config, from a release's config.json."""
        found = {
            ours: released[theirs] for ours, theirs in self.sizes.items() if theirs in released
        }
        if "activation" in found:
            found["activation"] = ACTIVATION_NAMES.get(found["activation"], found["activation"])
        fields = {**found, **self.fixed}
        if "context" in fields:
            fields["context"] -= fields.get("unused_positions", 0)
        return fields


ACTIVATION_NAMES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}

# Some files of the first releases call weight and bias of a norm gamma and beta.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

# What some files hold beside weights: numbers of positions, masks.
NO_WEIGHTS = ("position_ids", "token_type_ids", "attn.bias", "attn.masked_bias")


def _gpt(token: str, position: str) -> list[Row]:
    stacked = "blocks.{i}.attention.query_key_value.{t}"
    return [
        *rows("token.weight", f"{token}.weight"),
        *rows("position.weight", f"{position}.weight"),
        *rows("blocks.{i}.attention_norm.{t}", "h.{i}.ln_1.{t}"),
        *rows(stacked, "h.{i}.attn.c_attn.{t}", layout="transposed"),
        *rows("blocks.{i}.attention.out.{t}", "h.{i}.attn.c_proj.{t}", layout="transposed"),
        *rows("blocks.{i}.mlp_norm.{t}", "h.{i}.ln_2.{t}"),
        *rows("blocks.{i}.mlp.up.{t}", "h.{i}.mlp.c_fc.{t}", layout="transposed"),
        *rows("blocks.{i}.mlp.down.{t}", "h.{i}.mlp.c_proj.{t}", layout="transposed"),
    ]


def _embeddings(*, segments: bool = True) -> list[Row]:
    return [
        *rows("token.weight", "embeddings.word_embeddings.weight"),
        *rows("position.weight", "embeddings.position_embeddings.weight"),
        *(rows("segment.weight", "embeddings.token_type_embeddings.weight") if segments else []),
        *rows("norm.{t}", "embeddings.LayerNorm.{t}"),
    ]


def _encoder(
    layer: str, projections: tuple[str, str, str], out: str, norm: str, mlp: tuple[str, str, str]
) -> list[Row]:
    """The block of BERT, ALBERT and DistilBERT, whose releases differ in names only."""
    stacked = [f"{layer}{name}.{{t}}" for name in projections]
    return [
        *rows("blocks.{i}.attention.query_key_value.{t}", *stacked),
        *rows("blocks.{i}.attention.out.{t}", f"{layer}{out}.{{t}}"),
        *rows("blocks.{i}.attention_norm.{t}", f"{layer}{norm}.{{t}}"),
        *rows("blocks.{i}.mlp.up.{t}", f"{layer}{mlp[0]}.{{t}}"),
        *rows("blocks.{i}.mlp.down.{t}", f"{layer}{mlp[1]}.{{t}}"),
        *rows("blocks.{i}.mlp_norm.{t}", f"{layer}{mlp[2]}.{{t}}"),
    ]


def _masked_word(dense: str, norm: str, bias: str) -> list[Row]:
    """The head for hidden words, in all of BERT's family."""
    return [
        *rows("dense.{t}", f"{dense}.{{t}}"),
        *rows("norm.{t}", f"{norm}.{{t}}"),
        *rows("words.bias", bias),
    ]


_BERT_LAYERS = _encoder(
    "encoder.layer.{i}.",
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output.dense",
    "attention.output.LayerNorm",
    ("intermediate.dense", "output.dense", "output.LayerNorm"),
)

_BERT_POOLER = rows("pooler.{t}", "pooler.dense.{t}")

SPAN = rows("ends.{t}", "qa_outputs.{t}")
"""The head that says where an answer starts and ends, in all of BERT's family."""

_XLNET = [
    *rows("token.weight", "word_embedding.weight"),
    *rows("guess_D", "mask_emb", layout="vector"),
    *rows("blocks.{i}.attention.query.weight", "layer.{i}.rel_attn.q", layout="into heads"),
    *rows(
        "blocks.{i}.attention.key_value.weight",
        "layer.{i}.rel_attn.k",
        "layer.{i}.rel_attn.v",
        layout="into heads",
    ),
    *rows("blocks.{i}.attention.distance.weight", "layer.{i}.rel_attn.r", layout="into heads"),
    *rows("blocks.{i}.attention.out.weight", "layer.{i}.rel_attn.o", layout="out of heads"),
    *rows("blocks.{i}.attention.u_HE", "layer.{i}.rel_attn.r_w_bias"),
    *rows("blocks.{i}.attention.v_HE", "layer.{i}.rel_attn.r_r_bias"),
    *rows("blocks.{i}.attention.s_HE", "layer.{i}.rel_attn.r_s_bias"),
    *rows("blocks.{i}.attention.segment", "layer.{i}.rel_attn.seg_embed"),
    *rows("blocks.{i}.attention_norm.{t}", "layer.{i}.rel_attn.layer_norm.{t}"),
    *rows("blocks.{i}.mlp.up.{t}", "layer.{i}.ff.layer_1.{t}"),
    *rows("blocks.{i}.mlp.down.{t}", "layer.{i}.ff.layer_2.{t}"),
    *rows("blocks.{i}.mlp_norm.{t}", "layer.{i}.ff.layer_norm.{t}"),
]

_GPT_SIZES = {
    "vocabulary": "vocab_size",
    "width": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "context": "n_positions",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "eps": "layer_norm_epsilon",
}


def meant(fields: Mapping[str, Any], name: str) -> Any:
    """The value of a field of a config; where None stands for another value, that value."""
    if fields[name] is None and name == "inner":
        return 4 * fields["width"]
    if fields[name] is None and name == "attention_dropout":
        return fields["dropout"]
    return fields[name]


_BERT_SIZES = {
    "vocabulary": "vocab_size",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "context": "max_position_embeddings",
    "inner": "intermediate_size",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "eps": "layer_norm_eps",
}

_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

_BERT_ONLY = {
    "hidden_act": _ACTIVATIONS,
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}

_ENDINGS = {
    "": "Model",
    "words": "ForMaskedLM",
    "label": "ForSequenceClassification",
    "words and label": "ForPreTraining",
    "span": "ForQuestionAnswering",
}


def _architectures(family: str, *heads: str, words: str = "ForMaskedLM") -> dict[str, str]:
    """The names of a family's models: without a head, with one for words, and with others."""
    endings = {**_ENDINGS, "words": words}
    return {head: family + endings[head] for head in ("", "words", *heads)}


RELEASES: dict[str, Release] = {
    "openai-gpt": Release(
        prefix="transformer.",
        backbone=_gpt("tokens_embed", "positions_embed"),
        words=[],
        label=[],
        sizes=_GPT_SIZES,
        fixed={"norm_first": False},
        architectures=_architectures("OpenAIGPT", words="LMHeadModel"),
        # What the first GPT's releases call gelu is the approximation by tanh.
        only={"afn": ("gelu", "gelu_new")},
        dropouts=("embd_pdrop",),
        copies=("lm_head.weight",),
    ),
    "gpt2": Release(
        prefix="transformer.",
        backbone=[*_gpt("wte", "wpe"), *rows("norm.{t}", "ln_f.{t}")],
        words=[],
        label=[],
        sizes={**_GPT_SIZES, "inner": "n_inner", "activation": "activation_function"},
        fixed={"norm_first": True},
        architectures=_architectures("GPT2", words="LMHeadModel"),
        only={
            "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu"),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "add_cross_attention": (False,),
        },
        dropouts=("embd_pdrop",),
        copies=("lm_head.weight",),
    ),
    "bert": Release(
        prefix="bert.",
        backbone=[*_embeddings(), *_BERT_LAYERS, *_BERT_POOLER],
        words=_masked_word(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
        ),
        label=rows("labels.{t}", "cls.seq_relationship.{t}"),
        sizes=_BERT_SIZES,
        fixed={"pooler": True},
        architectures=_architectures("Bert", "label", "words and label", "span"),
        only=_BERT_ONLY,
        dropouts=("attention_probs_dropout_prob",),
        only_label="cls.seq_relationship",
        copies=("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
    ),
    "roberta": Release(
        prefix="roberta.",
        backbone=[*_embeddings(), *_BERT_LAYERS, *_BERT_POOLER],
        words=_masked_word("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        label=[
            *rows("pool.{t}", "classifier.dense.{t}"),
            *rows("labels.{t}", "classifier.out_proj.{t}"),
        ],
        sizes=_BERT_SIZES,
        fixed={"pooler": True, "unused_positions": 2},
        architectures=_architectures("Roberta", "label", "span"),
        # Its first word stands behind the position of the padding.
        only={**_BERT_ONLY, "pad_token_id": (1,)},
        dropouts=("attention_probs_dropout_prob",),
        copies=("lm_head.decoder.weight", "lm_head.decoder.bias"),
    ),
    "albert": Release(
        prefix="albert.",
        backbone=[
            *_embeddings(),
            *rows("up.{t}", "encoder.embedding_hidden_mapping_in.{t}"),
            *_encoder(
                "encoder.albert_layer_groups.{i}.albert_layers.0.",
                ("attention.query", "attention.key", "attention.value"),
                "attention.dense",
                "attention.LayerNorm",
                ("ffn", "ffn_output", "full_layer_layer_norm"),
            ),
            *rows("pooler.{t}", "pooler.{t}"),
        ],
        words=_masked_word("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        label=rows("labels.{t}", "sop_classifier.classifier.{t}"),
        sizes={**_BERT_SIZES, "embedding": "embedding_size"},
        fixed={"pooler": True, "shared": True},
        architectures=_architectures("Albert", "label", "words and label", "span"),
        only={**_BERT_ONLY, "num_hidden_groups": (1,), "inner_group_num": (1,)},
        dropouts=("attention_probs_dropout_prob",),
        only_label="sop_classifier.classifier",
        copies=("predictions.decoder.weight", "predictions.decoder.bias"),
    ),
    "distilbert": Release(
        prefix="distilbert.",
        backbone=[
            *_embeddings(segments=False),
            *_encoder(
                "transformer.layer.{i}.",
                ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
                "attention.out_lin",
                "sa_layer_norm",
                ("ffn.lin1", "ffn.lin2", "output_layer_norm"),
            ),
        ],
        words=_masked_word("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        label=[*rows("pool.{t}", "pre_classifier.{t}"), *rows("labels.{t}", "classifier.{t}")],
        sizes={
            "vocabulary": "vocab_size",
            "width": "dim",
            "layers": "n_layers",
            "heads": "n_heads",
            "context": "max_position_embeddings",
            "inner": "hidden_dim",
            "activation": "activation",
            "dropout": "dropout",
        },
        fixed={"segments": 0},
        architectures=_architectures("DistilBert", "label", "span"),
        only={"activation": _ACTIVATIONS, "sinusoidal_pos_embds": (False,)},
        dropouts=("attention_dropout",),
        copies=("vocab_projector.weight",),
    ),
    "xlnet": Release(
        prefix="transformer.",
        backbone=_XLNET,
        words=rows("words.bias", "lm_loss.bias"),
        label=[
            *rows("pool.{t}", "sequence_summary.summary.{t}"),
            *rows("labels.{t}", "logits_proj.{t}"),
        ],
        sizes={
            "vocabulary": "vocab_size",
            "width": "d_model",
            "layers": "n_layer",
            "heads": "n_head",
            "inner": "d_inner",
            "activation": "ff_activation",
            "dropout": "dropout",
            "eps": "layer_norm_eps",
        },
        fixed={},
        architectures=_architectures("XLNet", "label", words="LMHeadModel"),
        only={
            "ff_activation": _ACTIVATIONS,
            "attn_type": ("bi",),
            "bi_data": (False,),
            "clamp_len": (-1,),
            "same_length": (False,),
            "untie_r": (True,),
            "summary_type": ("last",),
            "summary_use_proj": (True,),
            "summary_activation": ("tanh",),
        },
        copies=("lm_loss.weight",),
    ),
}
