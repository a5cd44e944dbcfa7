"""The encoder–decoder against the paper's formulas in loops, and against torch.nn's layers."""

import math

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from labkit.attention import sinusoids
from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.masking import real_keys
from labkit.models.transformer import Transformer, TransformerConfig, teacher_forced

from . import Case, Differences, largest, loops, merge

WORDS, BEGIN = 11, 0
SHAPES = (([3, 5], 4, 2), ([1], 1, 1), ([2, 2, 4], 3, 4))
"""Real words of each source, length of the answer, heads."""

Vector = Tensor
Parameters = dict[str, Tensor]


def _model(heads: int, dtype: torch.dtype) -> LanguageModel:
    backbone = Transformer(TransformerConfig(WORDS, 8, 2, heads, 10, eps=1e-5))
    model = loops.random_weights(LanguageModel(backbone, NextWord(backbone.token)).to(dtype))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(0.5).add_(1.0 if "norm.weight" in name else 0.0)
    return model


def _task(lengths: list[int], length: int):
    draw = torch.Generator().manual_seed(5)
    source = torch.randint(1, WORDS, (len(lengths), max(lengths)), generator=draw)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return source, real, torch.randint(1, WORDS, (len(lengths), length), generator=draw)


def _embed(p: Parameters, words: list[int]) -> list[Vector]:
    """sqrt(D) times the word, plus PE(pos, 2i) = sin, PE(pos, 2i + 1) = cos (sines first here)."""
    width = p["token.weight"].shape[1]
    text = []
    for place, word in enumerate(words):
        angles = [place / 10_000 ** (2 * i / width) for i in range(width // 2)]
        waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        vector = p["token.weight"][word] * math.sqrt(width)
        text.append(loops.drop(vector + torch.tensor(waves, dtype=vector.dtype)))
    return text


def _norm(p: Parameters, name: str, x: Vector) -> Vector:
    centred = x - x.sum() / len(x)
    spread = ((centred * centred).sum() / len(x) + 1e-5).sqrt()
    return centred / spread * p[f"{name}.weight"] + p[f"{name}.bias"]


def _attention(p: Parameters, name: str, heads: int, asks: Vector, answers: list[Vector]) -> Vector:
    """MultiHead(Q, K, V) of section 3.2.2 for one query."""
    width = len(asks)
    size = width // heads

    def part(which: int, head: int, x: Vector) -> Vector:
        rows = slice(which * width + head * size, which * width + (head + 1) * size)
        matrix, bias = p[f"{name}.query_key_value.weight"], p[f"{name}.query_key_value.bias"]
        return matrix[rows] @ x + bias[rows]

    heard = []
    for head in range(heads):
        query = part(0, head, asks)
        scores = [query @ part(1, head, x) / math.sqrt(size) for x in answers]
        weights = loops.drop(loops.softmax(torch.stack(scores)))
        heard.append(sum(w * part(2, head, x) for w, x in zip(weights, answers, strict=True)))
    return p[f"{name}.out.weight"] @ torch.cat(heard) + p[f"{name}.out.bias"]


def _mlp(p: Parameters, name: str, x: Vector) -> Vector:
    """max(0, x W_1 + b_1) W_2 + b_2"""
    inner = loops.relu(p[f"{name}.up.weight"] @ x + p[f"{name}.up.bias"])
    return p[f"{name}.down.weight"] @ inner + p[f"{name}.down.bias"]


def _encode(p: Parameters, heads: int, text: list[Vector]) -> list[list[Vector]]:
    layers = [text]
    for i in range(2):
        b = f"encoder.{i}"
        text = [
            _norm(
                p,
                f"{b}.attention_norm",
                x + loops.drop(_attention(p, f"{b}.attention", heads, x, text)),
            )
            for x in text
        ]
        text = [_norm(p, f"{b}.mlp_norm", x + loops.drop(_mlp(p, f"{b}.mlp", x))) for x in text]
        layers.append(text)
    return layers


def _decode(p: Parameters, heads: int, text: list[Vector], source: list[Vector]):
    layers = [text]
    for i in range(2):
        b, new = f"blocks.{i}", []
        for place, x in enumerate(text):
            seen = text[: place + 1]
            heard = loops.drop(_attention(p, f"{b}.self_attention", heads, x, seen))
            y = _norm(p, f"{b}.self_attention_norm", x + heard)
            heard = loops.drop(_attention(p, f"{b}.cross_attention", heads, y, source))
            y = _norm(p, f"{b}.cross_attention_norm", y + heard)
            new.append(_norm(p, f"{b}.mlp_norm", y + loops.drop(_mlp(p, f"{b}.mlp", y))))
        text = new
        layers.append(text)
    return layers


def _loops(dtype: torch.dtype) -> Differences:
    found = []
    for lengths, length, heads in SHAPES:
        model = _model(heads, dtype)
        source, real, answers = _task(lengths, length)
        inputs = {"source_BK": source, "source_mask": real_keys(real)}
        states = model.backbone(teacher_forced(answers, BEGIN), **inputs)
        encoded = model.backbone.encode(source, mask=real_keys(real))
        loss = model.head.losses_N(states.hidden.flatten(0, 1), answers.flatten()).mean()
        p = dict(model.backbone.named_parameters())
        layers: list[list[list[Vector]]] = [[] for _ in range(6)]
        for row, size in enumerate(lengths):
            read = _encode(p, heads, _embed(p, source[row, :size].tolist()))
            given = [BEGIN, *answers[row, :-1].tolist()]
            written = _decode(p, heads, _embed(p, given), read[-1])
            for layer, text in zip(layers, read + written, strict=True):
                layer.append(text)
        expected = loops.mean_loss(layers[-1], answers, lambda h, p=p: p["token.weight"] @ h)
        ours = [layer[real] for layer in encoded.layers]
        ours += [layer.flatten(0, 1) for layer in states.layers]
        weights = list(model.parameters())
        found.append(
            {
                "layers": largest(ours, [loops.flat(layer) for layer in layers]),
                "loss": largest([loss], [expected]),
                "gradients": largest(
                    torch.autograd.grad(loss, weights), torch.autograd.grad(expected, weights)
                ),
            }
        )
    return merge(found)


NAMES = {
    "encoder": {
        "self_attn.in_proj_": "attention.query_key_value.", "self_attn.out_proj.": "attention.out.",
        "linear1.": "mlp.up.", "linear2.": "mlp.down.",
        "norm1.": "attention_norm.", "norm2.": "mlp_norm.",
    },
    "blocks": {
        "self_attn.in_proj_": "self_attention.query_key_value.",
        "self_attn.out_proj.": "self_attention.out.",
        "multihead_attn.in_proj_": "cross_attention.query_key_value.", "multihead_attn.out_proj.":
        "cross_attention.out.", "linear1.": "mlp.up.", "linear2.": "mlp.down.",
        "norm1.": "self_attention_norm.", "norm2.": "cross_attention_norm.", "norm3.": "mlp_norm.",
    },
}  # fmt: skip


def _copy(stack: nn.ModuleList, kind: str, ours: Parameters) -> dict[str, str]:
    """Give torch's layers our weights; the names of theirs by the names of ours."""
    pairs = {}
    for name, weight in stack.named_parameters():
        layer, _, rest = name.partition(".")
        for theirs, mine in NAMES[kind].items():
            if rest.startswith(theirs):
                pairs[f"{kind}.{layer}.{mine}{rest.removeprefix(theirs)}"] = name
                with torch.no_grad():
                    weight.copy_(ours[f"{kind}.{layer}.{mine}{rest.removeprefix(theirs)}"])
    assert len(pairs) == len(list(stack.parameters()))
    return pairs


def _torch(dtype: torch.dtype) -> Differences:
    found = []
    for lengths, length, heads in SHAPES:
        model = _model(heads, dtype).backbone
        source, real, answers = _task(lengths, length)
        sizes = {"d_model": 8, "nhead": heads, "dim_feedforward": 10, "dropout": 0.1}
        reference = nn.ModuleDict(
            {
                kind: nn.ModuleList(layer(**sizes, batch_first=True) for _ in range(2))
                for kind, layer in (
                    ("encoder", nn.TransformerEncoderLayer),
                    ("blocks", nn.TransformerDecoderLayer),
                )
            }
        ).to(dtype)
        for layer in (*reference["encoder"], *reference["blocks"]):
            layer.dropout.p = 0.0  # within the feed-forward, where the paper does not drop
        reference.eval()
        ours = dict(model.named_parameters())
        pairs = {kind: _copy(stack, kind, ours) for kind, stack in reference.items()}
        states = model(answers, source_BK=source, source_mask=real_keys(real))
        encoded = model.encode(source, mask=real_keys(real))
        read, written = [encoded.layers[0].detach()], [states.layers[0].detach()]
        for layer in reference["encoder"]:
            read.append(layer(read[-1], src_key_padding_mask=~real))
        hidden = torch.ones(length, length).triu(1).bool()
        rules = {"tgt_mask": hidden, "memory_key_padding_mask": ~real}
        for layer in reference["blocks"]:
            written.append(layer(written[-1], read[-1], **rules))
        states.hidden.sin().sum().backward()
        written[-1].sin().sum().backward()
        mine, theirs = [], []
        for kind, names in pairs.items():
            given = dict(reference[kind].named_parameters())
            mine += [ours[name].grad for name in names]
            theirs += [given[name].grad for name in names.values()]
        seen = [layer[real] for layer in (*encoded.layers, *read)]
        found.append(
            {
                "layers": largest([*seen[:3], *states.layers], [*seen[3:], *written]),
                "gradients": largest(mine, theirs),
            }
        )
    return merge(found)


MARIAN = {
    "mlp.activation": "fc1", "mlp.up": "fc1", "mlp.down": "fc2",
    "mlp_norm": "final_layer_norm", "attention_norm": "self_attn_layer_norm",
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "attention.out": "self_attn.out_proj", "self_attention.out": "self_attn.out_proj",
    "cross_attention.out": "encoder_attn.out_proj",
}  # fmt: skip
PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def _of_marian(name: str, theirs: Parameters) -> list[Tensor]:
    """The parameters of Marian that one of ours holds; query, key and value are one matrix here."""
    if name == "token.weight":
        return [theirs["model.shared.weight"]]
    tower, layer, *part, kind = name.split(".")
    where = f"model.{'encoder' if tower == 'encoder' else 'decoder'}.layers.{layer}"
    if part[-1] == "query_key_value":
        attention = "encoder_attn" if part[0] == "cross_attention" else "self_attn"
        return [theirs[f"{where}.{attention}.{one}.{kind}"] for one in PROJECTIONS]
    return [theirs[f"{where}.{MARIAN['.'.join(part)]}.{kind}"]]


def _marian(dtype: torch.dtype) -> Differences:
    """Marian's translators are the paper's model with a bias on the words, zero at first."""
    found = []
    for lengths, length, heads in SHAPES:
        model = _model(heads, dtype)
        source, real, answers = _task(lengths, length)
        sizes = {
            f"{tower}_{what}": size
            for tower in ("encoder", "decoder")
            for what, size in (("layers", 2), ("attention_heads", heads), ("ffn_dim", 10))
        }
        config = MarianConfig(
            vocab_size=WORDS, d_model=8, activation_function="relu", scale_embedding=True,
            dropout=0.1, attention_dropout=0.1, activation_dropout=0.0, pad_token_id=0,
            decoder_start_token_id=0, max_position_embeddings=32, **sizes,
        )  # fmt: skip
        reference = MarianMTModel(config).to(dtype).eval()
        ours, theirs = dict(model.backbone.named_parameters()), dict(reference.named_parameters())
        for module in reference.modules():
            if isinstance(module, nn.Embedding):
                module.padding_idx = None  # the word that begins a text learns, too
        with torch.no_grad():
            for tower in (reference.model.encoder, reference.model.decoder):
                # The release keeps its waves in 32 bits.
                tower.embed_positions.weight.copy_(sinusoids(torch.arange(32), 8, dtype))
            for name, weight in ours.items():
                parts = _of_marian(name, theirs)
                for own, part in zip(weight.chunk(len(parts)), parts, strict=True):
                    part.copy_(own)
        given = teacher_forced(answers, BEGIN)
        states = model.backbone(given, source_BK=source, source_mask=real_keys(real))
        encoded = model.backbone.encode(source, mask=real_keys(real))
        loss = model.head.losses_N(states.hidden.flatten(0, 1), answers.flatten()).mean()
        told = {"attention_mask": real.long(), "decoder_input_ids": given, "labels": answers}
        said = reference(source, **told, output_hidden_states=True)
        model.zero_grad()
        loss.backward()
        said.loss.backward()
        layers = [*(x[real] for x in encoded.layers), *states.layers]
        read = (*(x[real] for x in said.encoder_hidden_states), *said.decoder_hidden_states)
        parts = {name: _of_marian(name, theirs) for name in ours}
        gradients = [torch.cat([part.grad for part in parts[name]]) for name in ours]
        found.append(
            {
                "layers": largest(layers, read),
                "loss": largest([loss], [said.loss]),
                "gradients": largest([weight.grad for weight in ours.values()], gradients),
            }
        )
    return merge(found)


CASES = [
    Case("Transformer", "encoder, decoder, padding, teacher forcing", loops.PAPER, _loops),
    Case("Transformer", "encoder, decoder, padding", "torch.nn", _torch),
    Case(
        "Transformer", "Marian: encoder, decoder, padding, teacher forcing", "transformers", _marian
    ),
]
