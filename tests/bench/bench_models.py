"""One training step of our models against the implementation of the releases.

    python tests/bench/bench_models.py [--models GPT-2 BERT] [--sizes 0 1] [--steps 9]

A step is forward, backward, clipping and AdamW, at the same shapes, precision, dropout and loss.
Both run in one process, in turns; the time is the median, the ratio the median over the turns.
`model` is forward and backward alone.  Peak memory is that of a process of its own, from before
the model is built.  The reference runs as its documentation writes it, with torch's default AdamW;
the last column gives it the fused one that ours uses.
"""

import argparse
import math
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
import transformers as release
from torch import Tensor, nn

from labkit import fast
from labkit.heads import Label, MaskedWord, NextWord
from labkit.masking import before, up_to
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.models.transformer import Transformer, TransformerConfig, teacher_forced
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.weights.release_names import RELEASES

SIZES = ((64, 2_000), (96, 2_000), (128, 2_000), (256, 8_000), (256, 30_522))
"""Width and vocabulary."""
BATCH, LENGTH, LAYERS, HEADS = 16, 128, 4, 4

# On a machine that is busy with other things, the time of this process alone says more.
clock = time.process_time if "--own-time" in sys.argv else time.perf_counter

Loss = Callable[[], Tensor]
Built = tuple[nn.Module, Loss]


def texts(vocabulary: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, targets, where a word is asked (15 %), and which of two segments a position is in."""
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(6, vocabulary, (BATCH, LENGTH), generator=draw)
    targets = torch.randint(6, vocabulary, (BATCH, LENGTH), generator=draw)
    asked = torch.rand(BATCH, LENGTH, generator=draw) < 0.15
    return tokens, targets, asked, (torch.arange(LENGTH) >= LENGTH // 2).long().expand(BATCH, -1)


def bert_sizes(width: int, vocabulary: int) -> dict:
    """The sizes that BERT's and ALBERT's configs share."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * width,
        "max_position_embeddings": LENGTH,
    }


def gpt2(width: int, vocabulary: int, ours: bool) -> Built:
    """Next word, at every position."""
    config = release.GPT2Config(
        vocab_size=vocabulary,
        n_positions=LENGTH,
        n_embd=width,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=0,
        eos_token_id=0,
    )
    tokens, *_ = texts(vocabulary)
    if not ours:
        reference = release.GPT2LMHeadModel(config)
        return reference, lambda: reference(tokens, labels=tokens).loss
    backbone = GPT(GPTConfig(**RELEASES["gpt2"].config(config.to_dict())))
    head = NextWord(backbone.token)

    def loss() -> Tensor:
        states = backbone(tokens[:, :-1])
        return head.losses_N(states.hidden.flatten(0, 1), tokens[:, 1:].flatten()).mean()

    return nn.ModuleList([backbone, head]), loss


def encoder(family: str, config, model: type) -> Callable[[int, int, bool], Built]:
    """Masked words at 15 % of the positions, and a label for pairs where the release has one."""

    def build(width: int, vocabulary: int, ours: bool) -> Built:
        settings = config(width, vocabulary)
        tokens, targets, asked, segments = texts(vocabulary)
        follows = torch.arange(BATCH) % 2
        pair = {
            "bert": {"next_sentence_label": follows},
            "albert": {"sentence_order_label": follows},
        }
        given = {"token_type_ids": segments, **pair[family]} if family in pair else {}
        if not ours:
            reference = model(settings)
            labels = targets.masked_fill(~asked, -100)
            return reference, lambda: reference(tokens, labels=labels, **given).loss
        fields = {**RELEASES[family].config(settings.to_dict()), "pooler": family in pair}
        backbone = BERT(BERTConfig(**fields))
        c = backbone.config
        words = MaskedWord(backbone.token, c.width, activation=c.activation)
        label = Label(c.width, 2, pool=backbone.pooler)

        def loss() -> Tensor:
            states = backbone(tokens, segments_BT=given.get("token_type_ids"))
            found = words.losses_N(states.hidden[asked], targets[asked]).mean()
            if given:
                found = found + F.cross_entropy(label(states.hidden[:, 0]), follows)
            return found

        return nn.ModuleList([backbone, words, *([label] if given else [])]), loss

    return build


def xlnet(width: int, vocabulary: int, ours: bool) -> Built:
    """The last sixth of a random order."""
    config = release.XLNetConfig(
        vocab_size=vocabulary, d_model=width, n_layer=LAYERS, n_head=HEADS, d_inner=4 * width
    )
    tokens, _, _, segments = texts(vocabulary)
    order = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(1)).argsort(-1)
    asked = order.argsort(-1)[:, -LENGTH // 6 :]
    targets = tokens.gather(1, asked)
    if not ours:
        reference = release.XLNetLMHeadModel(config)

        def their_loss() -> Tensor:
            return reference(
                tokens,
                perm_mask=(~before(order)[:, 0]).float(),
                target_mapping=F.one_hot(asked, LENGTH).float(),
                token_type_ids=segments,
                labels=targets,
            ).loss

        return reference, their_loss
    backbone = XLNet(XLNetConfig(**RELEASES["xlnet"].config(config.to_dict())))
    head = NextWord(backbone.token, bias=True)

    def loss() -> Tensor:
        streams = backbone.two_streams(
            tokens, asked, mask=up_to(order), query_mask=before(order), segments_BT=segments
        )
        return head.losses_N(streams.query.hidden.flatten(0, 1), targets.flatten()).mean()

    return nn.ModuleList([backbone, head]), loss


def translator(width: int, vocabulary: int, ours: bool) -> Built:
    """Every word of the target, after the right ones: the paper's model as Marian has it."""
    sizes = {
        f"{tower}_{what}": size
        for tower in ("encoder", "decoder")
        for what, size in (("layers", LAYERS), ("attention_heads", HEADS), ("ffn_dim", 4 * width))
    }
    tokens, targets, *_ = texts(vocabulary)
    given = teacher_forced(targets, 1)
    if not ours:
        config = release.MarianConfig(
            vocab_size=vocabulary, d_model=width, activation_function="relu", attention_dropout=0.1,
            scale_embedding=True, pad_token_id=0, decoder_start_token_id=1, **sizes,
        )  # fmt: skip
        reference = release.MarianMTModel(config)
        return reference, lambda: reference(tokens, decoder_input_ids=given, labels=targets).loss
    backbone = Transformer(TransformerConfig(vocabulary, width, LAYERS, HEADS, 4 * width))
    head = NextWord(backbone.token)

    def loss() -> Tensor:
        states = backbone(given, source_BK=tokens)
        return head.losses_N(states.hidden.flatten(0, 1), targets.flatten()).mean()

    return nn.ModuleList([backbone, head]), loss


MODELS: dict[str, Callable[[int, int, bool], Built]] = {
    "GPT-2": gpt2,
    "BERT": encoder(
        "bert",
        lambda width, vocabulary: release.BertConfig(**bert_sizes(width, vocabulary)),
        release.BertForPreTraining,
    ),
    "ALBERT": encoder(
        "albert",
        lambda width, vocabulary: release.AlbertConfig(
            **bert_sizes(width, vocabulary), embedding_size=128
        ),
        release.AlbertForPreTraining,
    ),
    "DistilBERT": encoder(
        "distilbert",
        lambda width, vocabulary: release.DistilBertConfig(
            vocab_size=vocabulary,
            dim=width,
            n_layers=LAYERS,
            n_heads=HEADS,
            hidden_dim=4 * width,
            max_position_embeddings=LENGTH,
        ),
        release.DistilBertForMaskedLM,
    ),
    "XLNet": xlnet,
    "Transformer": translator,
}


class Step:
    """One model and its optimizer."""

    def __init__(self, build, size: tuple[int, int], ours: bool, precision: str) -> None:
        torch.manual_seed(0)
        self.model, self.loss = build(*size, ours)
        self.model.train()
        self.parameters = list(self.model.parameters())
        rate = {"lr": 1e-4, "weight_decay": 0.01}
        self.optimizer = torch.optim.AdamW(self.parameters, fused=True if ours else None, **rate)
        self.other = None if ours else torch.optim.AdamW(self.parameters, fused=True, **rate)
        self.precision = precision
        # As the trainer runs a model.
        self.faster = fast.enable if ours else nullcontext

    def __call__(self) -> tuple[float, float, float]:
        """Seconds of the whole step, of forward and backward, of a step with fused AdamW."""
        short = self.precision == "bfloat16"
        with self.faster():
            with torch.autocast("cpu", torch.bfloat16) if short else nullcontext():
                start = clock()
                loss = self.loss()
            loss.backward()
        model = clock() - start
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        clipped = clock() - start
        self.optimizer.step()
        self.optimizer.zero_grad()
        whole = clock() - start
        return whole, model, clipped

    def fused_update(self) -> float:
        """Seconds of the fused update, which the reference takes beside its own."""
        if self.other is None:
            return 0.0
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        start = clock()
        self.other.step()
        self.other.zero_grad()
        return clock() - start


def _peak(connection, build, size, ours: bool, precision: str) -> None:
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = Step(build, size, ours, precision)
    step.other = None
    for _ in range(2):
        step()
    connection.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 1024)


def peak_memory(build, size: tuple[int, int], ours: bool, precision: str) -> float:
    """MiB that two steps need at most, in a process of their own."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_peak, args=(there, build, size, ours, precision))
    process.start()
    there.close()  # so that a process that died is noticed
    found = here.recv()
    process.join()
    return found


def race(build, size: tuple[int, int], precision: str, turns: int) -> dict[str, float]:
    """Median milliseconds of both, and the median ratios, theirs / ours."""
    ours, theirs = (Step(build, size, mine, precision) for mine in (True, False))
    seconds: list[tuple[float, ...]] = []
    for turn in range(turns + 2):
        mine, reference = ours(), theirs()
        fused = reference[2] + theirs.fused_update()
        if turn >= 2:
            seconds.append((*mine[:2], *reference[:2], fused))
    ratios = [(t / o, tm / om, f / o) for o, om, t, tm, f in seconds]
    whole, model, fused_ratio = (statistics.median(r) for r in zip(*ratios, strict=True))
    return {
        "ours": 1e3 * statistics.median(s[0] for s in seconds),
        "theirs": 1e3 * statistics.median(s[2] for s in seconds),
        "ratio": whole,
        "model": model,
        "fused": fused_ratio,
    }


def main() -> None:
    """Print the table and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument(
        "--sizes", nargs="*", type=int, default=range(len(SIZES)), choices=range(len(SIZES))
    )
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--own-time", action="store_true", help="seconds of this process alone")
    given = parser.parse_args()
    chosen = [(name, SIZES[size]) for name in given.models for size in given.sizes]
    # Before any thread is started here: a process that is forked later would wait for it.
    memory = [
        [peak_memory(MODELS[name], size, ours, given.precision) for ours in (True, False)]
        for name, size in chosen
    ]
    print(
        f"{BATCH} texts of {LENGTH} tokens, {LAYERS} layers, {HEADS} heads, {given.precision}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}\n\n"
        "| model | width | vocabulary | ours, ms | reference, ms | ratio | model alone "
        "| reference with fused AdamW | peak, MiB | reference, MiB |"
    )
    print("|---|" + "---:|" * 9, flush=True)
    found = []
    for (name, size), (mine, reference) in zip(chosen, memory, strict=True):
        row = race(MODELS[name], size, given.precision, given.steps)
        found.append(row)
        print(
            f"| {name} | {size[0]} | {size[1]:,} | {row['ours']:.0f} | {row['theirs']:.0f} "
            f"| {row['ratio']:.2f} | {row['model']:.2f} | {row['fused']:.2f} "
            f"| {mine:.0f} | {reference:.0f} |",
            flush=True,
        )
    for kind in ("ratio", "model", "fused"):
        values = [row[kind] for row in found]
        mean = math.exp(statistics.mean(math.log(value) for value in values))
        print(f"{kind}: geometric mean {mean:.2f}, lowest {min(values):.2f}")


if __name__ == "__main__":
    main()
