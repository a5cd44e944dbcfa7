"""How fast a GPU trains and writes, beside other implementations that take turns with ours.

    python -m labkit bench gpu
    python tests/bench/bench_gpu.py [attention] [gpt] [encoders] [memory] [orders] [writing]
        [--seconds 15] [--tiny]

Products are in bfloat16, models are compiled. With `--tiny`, or without a GPU, everything runs at
sizes that only show that it works: the figures mean nothing.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from bench_sampling import SPREAD, compare, generate
from bench_trainer import Size as Sizes
from bench_trainer import Steps, Windows, in_turns, machine, noise
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from labkit import attention as attention_of_labkit
from labkit import fast
from labkit.attention import by_distance
from labkit.blocks import LanguageModel
from labkit.costs import bills, tables
from labkit.heads import MaskedWord
from labkit.keeping.computing import measured_peak
from labkit.masking import before, up_to
from labkit.models.bert import BERT, BERTConfig
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.models.xlnet import XLNet, XLNetConfig
from labkit.objectives import MaskedToken, NextToken
from labkit.plan import Plan
from labkit.sampling import Sampling, sample
from labkit.text.vocabulary import Vocabulary
from labkit.trainer import Trainer
from labkit.weights import load


@dataclass(frozen=True)
class Scale:
    """How large everything is, and where it runs."""

    device: str
    seconds: float
    """For each row of a table."""
    width: int = 768
    layers: int = 12
    tokens: int = 32_768
    """In a step."""
    length: int = 1_024
    vocabulary: int = 50_304
    new: int = 256
    """Words that are written."""
    chunk: int = 5
    """Steps between two looks at the clock."""

    @property
    def heads(self) -> int:
        """As many as are usual."""
        return max(2, self.width // 64)

    @property
    def gpu(self) -> bool:
        """Whether a GPU computes, and models are compiled."""
        return self.device == "cuda"

    def rows(self, length: int) -> int:
        """How many rows of a length a step has."""
        return max(1, self.tokens // length)

    def settle(self) -> None:
        """Wait until all that was asked for is computed."""
        if self.gpu:
            torch.cuda.synchronize()

    def compiled(self, module: nn.Module) -> Callable[..., Any]:
        """The module on the device."""
        module = module.to(self.device)
        return torch.compile(module) if self.gpu else module

    def half(self) -> torch.autocast:
        """Products in bfloat16."""
        return torch.autocast(self.device, torch.bfloat16)


def tiny(device: str) -> Scale:
    """Sizes that take seconds on a processor."""
    return Scale(device, 0.0, 32, 2, 64, 16, 96, 8, 1)


def held(scale: Scale) -> int:
    """The bytes that are in use now."""
    return torch.cuda.memory_allocated() if scale.gpu else 0


def in_use(scale: Scale, before: int = 0) -> str:
    """The most memory since the last question, without what was in use before."""
    if not scale.gpu:
        return "not measured"
    said = f"{(torch.cuda.max_memory_allocated() - before) / 2**30:.1f} GiB"
    torch.cuda.reset_peak_memory_stats()
    return said


def printed_peak() -> float | None:
    """Operations a second of this GPU by its data sheet, if data/costs/hardware.csv has it."""
    name = torch.cuda.get_device_name().lower() if torch.cuda.is_available() else ""
    rows = [row["name"] for row in tables.read_table("hardware") if row["name"] in name]
    return bills.machine(rows[0]).peak_flop_per_second if rows else None


# ---- attention alone -----------------------------------------------------------------------------

KERNELS = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)


def attention(scale: Scale) -> Iterator[str]:
    """Causal attention there and back, by each kernel that torch has for it."""
    yield "| texts × heads × length × width of a head | kernel | ms |"
    yield "|---|---|---:|"
    for length in (scale.length // 2, scale.length):
        shape = (scale.rows(length), scale.heads, length, scale.width // scale.heads)
        for kernel in KERNELS if scale.gpu else (SDPBackend.MATH,):
            said = "not here"
            with suppress(RuntimeError):
                run = attending(shape, kernel, scale)
                (taken,) = in_turns(
                    [run], seconds=scale.seconds / 8, chunk=scale.chunk, settle=scale.settle
                )
                said = f"{1000 * taken:.2f}"
            yield f"| {' × '.join(map(str, shape))} | {kernel.name.lower()} | {said} |"


def attending(shape: tuple[int, ...], kernel: SDPBackend, scale: Scale) -> Steps:
    """Attention and its gradients, again and again."""
    make = partial(
        torch.randn, shape, dtype=torch.bfloat16, device=scale.device, requires_grad=True
    )
    q, k, v = make(), make(), make()
    while True:
        with sdpa_kernel(kernel):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        yield torch.autograd.grad(y, (q, k, v), y.detach())


# ---- GPT-2 ---------------------------------------------------------------------------------------


class PlainBlock(nn.Module):
    """A block as nanoGPT structures it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a feed-forward, each added to its input."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    """GPT-2 as nanoGPT structures it: plain layers of PyTorch, and the loss in its forward."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.ModuleList(
            PlainBlock(sizes.width, sizes.heads) for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width)
        self.scores = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Embedding):
                nn.init.normal_(layer.weight, std=0.02)
        self.scores.weight = self.words.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The mean loss of the next word."""
        given, next_word = tokens_BT[:, :-1], tokens_BT[:, 1:]
        places = torch.arange(given.shape[1], device=given.device)
        x = self.words(given) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        scores = self.scores(self.norm(x))
        return F.cross_entropy(scores.flatten(0, 1), next_word.flatten())


def plain_loop(model: nn.Module, text: Windows, plan: Plan, scale: Scale) -> Steps:
    """A loop as nanoGPT's: batch, loss, clip, fused AdamW, and now and then a look at the loss."""
    forward = scale.compiled(model)
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() >= 2], "weight_decay": plan.decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=plan.betas, fused=True)
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * plan.share(step)
        tokens = text.tokens(step)
        if scale.gpu:
            tokens = tokens.pin_memory().to(scale.device, non_blocking=True)
        with scale.half():
            loss = forward(tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, plan.clip or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            float(loss.detach())
        yield loss


def gpt(scale: Scale) -> Iterator[str]:
    """GPT-2 124M: our trainer, and nanoGPT's model in nanoGPT's loop."""
    sizes = Sizes(
        scale.layers, scale.heads, scale.width, scale.length, scale.rows(scale.length),
        scale.vocabulary,
    )  # fmt: skip
    plan = plan_for(scale, rate=6e-4)
    trainer = Trainer(sizes.model(), NextToken(), noise(sizes), plan, progress=False)
    operations = trainer.operations(noise(sizes).at(0))
    peak, printed = measured_peak(scale.device, torch.bfloat16), printed_peak()
    torch.manual_seed(0)
    names = ("nanoGPT's model and loop", "labkit's trainer")
    runs: list[Steps] = [plain_loop(PlainGPT(sizes), noise(sizes), plan, scale), trainer.run()]
    times = in_turns(runs, seconds=2 * scale.seconds, chunk=scale.chunk, settle=scale.settle)
    yield f"{operations / 1e12:.1f} · 10¹² operations a step, those of causal attention in full"
    yield f"large products: {peak / 1e12:.0f} TFLOP/s"
    printed_says = "unknown" if printed is None else f"{printed / 1e12:.0f} TFLOP/s"
    yield f"the data sheet: {printed_says}"
    yield ""
    yield (
        "| GPT-2 | ms a step | words a second | share of the measured peak | of the printed peak |"
    )
    yield "|---|---:|---:|---:|---:|"
    for name, taken in zip(names, times, strict=True):
        of_printed = "" if printed is None else f"{operations / taken / printed:.0%}"
        yield (
            f"| {name}, {sizes.batch} × {sizes.context} | {1000 * taken:.1f} "
            f"| {sizes.batch * sizes.context / taken:,.0f} "
            f"| {operations / taken / peak:.0%} | {of_printed} |"
        )
    yield ""
    yield f"labkit / nanoGPT: {times[0] / times[1]:.2f} × as fast; {in_use(scale)} for both"


def plan_for(scale: Scale, **changes: Any) -> Plan:
    """A plan without an end."""
    return Plan(
        steps=10**6, warmup=100, precision="bfloat16", compile=scale.gpu, device=scale.device,
        **changes,
    )  # fmt: skip


# ---- BERT ----------------------------------------------------------------------------------------


class TheirMasked(nn.Module):
    """The reference's BERT with random words hidden, so that it fits into the plain loop.

    It scores all words, as it does for its users; labkit scores the hidden ones.
    """

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        from transformers import BertConfig, BertForMaskedLM

        config = BertConfig(**sizes, attn_implementation="sdpa")
        self.model = BertForMaskedLM(config)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The loss at 15 % of the words."""
        hidden = torch.rand(tokens_BT.shape, device=tokens_BT.device) < 0.15
        flash = sdpa_kernel(SDPBackend.FLASH_ATTENTION) if tokens_BT.is_cuda else nullcontext()
        with flash:  # it raises where another kernel would be taken
            return self.model(
                tokens_BT.masked_fill(hidden, 4), labels=tokens_BT.masked_fill(~hidden, -100)
            ).loss


def encoders(scale: Scale) -> Iterator[str]:
    """BERT base: our trainer with its objective, and `transformers` with flash attention."""
    yield "| BERT | labkit, ms a step | words a second | transformers, ms a step | ratio |"
    yield "|---|---:|---:|---:|---:|"
    vocabulary = min(scale.vocabulary, 30_522)
    words = Vocabulary(vocabulary, mask=4, special=(0, 1, 2, 3, 4))
    for length in (scale.length // 8, scale.length // 2):
        rows = scale.rows(length)
        text = Windows(torch.randint(5, vocabulary, (1_000_000,)), rows, length - 1)
        sizes = {
            "vocab_size": vocabulary, "hidden_size": scale.width, "num_hidden_layers": scale.layers,
            "num_attention_heads": scale.heads, "intermediate_size": 4 * scale.width,
            "max_position_embeddings": length,
        }  # fmt: skip
        backbone = BERT(
            BERTConfig(vocabulary, scale.width, scale.layers, scale.heads, context=length)
        )
        model = LanguageModel(backbone, MaskedWord(backbone.token, scale.width))
        plan = plan_for(scale, rate=1e-4)
        trainer = Trainer(model, MaskedToken(vocabulary=words), text, plan, progress=False)
        runs = [trainer.run(), plain_loop(TheirMasked(sizes), text, plan, scale)]
        ours, theirs = in_turns(runs, seconds=scale.seconds, chunk=scale.chunk, settle=scale.settle)
        yield (
            f"| {rows} × {length} | {1000 * ours:.1f} | {rows * length / ours:,.0f} "
            f"| {1000 * theirs:.1f} | {theirs / ours:.2f} |"
        )


# ---- relative scores -----------------------------------------------------------------------------


class XL(nn.Module):
    """A Transformer-XL that reads a segment after another of the same length."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.backbone = TransformerXL(TransformerXLConfig(
            1_000, scale.width, scale.layers, scale.heads, scale.length, scale.length, dropout=0.0,
        ))  # fmt: skip

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The states of the second segment."""
        first, second = tokens_BT.chunk(2, dim=1)
        with torch.no_grad():
            memory = self.backbone(first).memory
        return self.backbone(second, memory=memory).hidden


class Orders(nn.Module):
    """An XLNet that predicts the last sixth of a random order."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.backbone = XLNet(XLNetConfig(
            1_000, scale.width, scale.layers, scale.heads, scale.length, dropout=0.0,
        ))  # fmt: skip
        order = torch.randperm(scale.length, generator=torch.Generator().manual_seed(1))
        self.register_buffer("order_1T", order[None])
        self.register_buffer("asked_1N", order.argsort()[None, -max(1, scale.length // 6) :])

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The states of the query stream."""
        rows = len(tokens_BT)
        order_BT, asked_BN = self.order_1T.expand(rows, -1), self.asked_1N.expand(rows, -1)
        streams = self.backbone.two_streams(
            tokens_BT, asked_BN, mask=up_to(order_BT), query_mask=before(order_BT)
        )
        return streams.query.hidden


def shifted(scores_BHQR: Tensor, keys: int) -> Tensor:
    """`labkit.attention.by_distance` where the queries are the last keys: no score is copied.

    Query i finds key j in column queries - 1 - i + j: each row begins one column further left than
    the row above it, as if rows were one column shorter (Dai et al. 2019, appendix B).
    """
    queries, columns = scores_BHQR.shape[-2:]
    if queries == 1:
        return scores_BHQR[..., :keys]
    short = queries * (columns - 1)
    rows_BHN = scores_BHQR.flatten(-2)[..., queries - 1 : queries - 1 + short]
    return rows_BHN.unflatten(-1, (queries, columns - 1))[..., :keys]


def by_shift(scores_BHQR: Tensor, positions: Tensor, keys: int) -> Tensor:
    """`labkit.attention.by_distance`, by a shift where the queries are the last keys.

    Only then `positions` is a row: those of XLNet's query stream are a table, a row for each text.
    """
    if positions.dim() == 1:
        return shifted(scores_BHQR, keys)
    return by_distance(scores_BHQR, positions, keys)


def by_flex(
    q_BHQE: Tensor,
    k_BHKE: Tensor,
    v_BHKE: Tensor,
    scores_BHQR: Tensor,
    positions: Tensor,
    *,
    mask: Tensor | None = None,
    bias_BHQK: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`labkit.attention.attend_by_distance` in one kernel, which picks each score where it is used.

    FlexAttention (Dong et al. 2024) adds the score while a tile of the products is in the fast
    memory of the chip. It drops no weights, and on a CPU it has no gradients.
    """
    assert bias_BHQK is None
    assert dropout == 0
    (batch, _, queries, _), keys = q_BHQE.shape, k_BHKE.shape[2]
    first_BQ = (keys - 1 - positions).expand(batch, queries)
    mask_BQK = None if mask is None else mask.expand(batch, 1, queries, keys)[:, 0]

    def with_distance(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = score + scores_BHQR[b, h, i, first_BQ[b, i] + j]
        return score if mask_BQK is None else torch.where(mask_BQK[b, i, j], score, -math.inf)

    # Autocast does not know FlexAttention.
    dtype, kind = q_BHQE.dtype, q_BHQE.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    q, k, v = (part.to(dtype) for part in (q_BHQE, k_BHKE, v_BHKE))
    y_BHQE = flex_attention(q, k, v, score_mod=with_distance)
    assert isinstance(y_BHQE, Tensor)
    return y_BHQE


@contextmanager
def instead(**versions: Callable[..., Tensor]) -> Iterator[None]:
    """The faster versions of labkit, and these functions instead of those of its attention."""
    with fast.enable(), mock.patch.multiple(attention_of_labkit, **versions):
        yield


def memory(scale: Scale) -> Iterator[str]:
    """Transformer-XL: relative scores written out, by a shift of rows, and by FlexAttention."""
    return relative(XL, 2, scale)


def orders(scale: Scale) -> Iterator[str]:
    """XLNet's two streams: relative scores written out, by a shift of rows, by FlexAttention."""
    return relative(Orders, 1, scale)


def relative(kind: Callable[[Scale], nn.Module], spread: int, scale: Scale) -> Iterator[str]:
    """Each way there and back: its time, its memory, and how far it is from float32."""
    rows = max(1, scale.rows(scale.length) // 4)
    yield f"{rows} × {scale.length}; errors are those of bfloat16 against float32, written out"
    yield ""
    yield "| way | ms | memory | written out / this | error of states | of gradients |"
    yield "|---|---:|---:|---:|---:|---:|"
    ways: dict[str, Any] = {
        "written out": {"by_distance": by_distance},
        "shifted": {"by_distance": by_shift},
    }
    if scale.gpu:
        ways["flex"] = {"attend_by_distance": by_flex}
    tokens = torch.randint(1_000, (rows, spread * scale.length), device=scale.device)
    exact = first_of(fresh(kind, scale), scale, tokens, ways["written out"], exact=True)[1:]
    runs, said = [], []
    for way, versions in ways.items():
        before = held(scale)
        try:
            run, *found = first_of(fresh(kind, scale), scale, tokens, versions)
        except Exception as error:  # the other ways still have their rows
            yield f"| {way} | {type(error).__name__} | | | | |"
            continue
        # The first call compiles; what the ways before still hold counts for none of them.
        in_use(scale)
        next(run)
        states, gradients = (apart(one, other) for one, other in zip(found, exact, strict=True))
        runs.append(run)
        said.append((way, in_use(scale, before), f"{states:.1e} | {gradients:.1e}"))
    times = in_turns(runs, seconds=scale.seconds, chunk=scale.chunk, settle=scale.settle)
    for taken, (way, room, errors) in zip(times, said, strict=True):
        ratio = f"{times[0] / taken:.2f}" if said[0][0] == "written out" else ""
        yield f"| {way} | {1000 * taken:.1f} | {room} | {ratio} | {errors} |"


def fresh(kind: Callable[[Scale], nn.Module], scale: Scale) -> nn.Module:
    """The same weights each time."""
    torch.manual_seed(0)
    return kind(scale)


def first_of(
    module: nn.Module, scale: Scale, tokens: Tensor, versions: dict[str, Any], exact: bool = False
) -> tuple[Iterator[Tensor], Tensor, Tensor]:
    """Passes there and back without end; the states of the first, and its gradients."""
    run = there_and_back(module, scale, tokens, partial(instead, **versions), exact)
    states = next(run).float().cpu()
    found = [w.grad.flatten().cpu() for w in module.parameters() if w.grad is not None]
    return run, states, torch.cat(found)


def there_and_back(
    module: nn.Module, scale: Scale, tokens: Tensor, way: Callable[[], Any], exact: bool
) -> Iterator[Tensor]:
    """States and gradients of their squares, again and again, in bfloat16 unless exact."""
    module = module.to(scale.device)
    forward = module if exact else scale.compiled(module)
    while True:
        module.zero_grad()
        with way():
            with nullcontext() if exact else scale.half():
                states = forward(tokens)
            states.float().square().mean().backward()
        yield states.detach()


def apart(one: Tensor, other: Tensor) -> float:
    """|one - other| / |other|"""
    return float((one - other).norm() / other.norm())


# ---- writing -------------------------------------------------------------------------------------


def writing(scale: Scale) -> Iterator[str]:
    """Words a second in bfloat16, beside `generate` with a static cache, which compiles itself."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=scale.vocabulary, n_embd=scale.width, n_layer=scale.layers, n_head=scale.heads,
        n_positions=2 * scale.new + 8, bos_token_id=0, eos_token_id=None,
    )  # fmt: skip
    theirs = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # as sure of the next word as a trained model
        theirs.transformer.ln_f.weight.fill_(SPREAD / config.initializer_range / scale.width**0.5)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load(folder).to(scale.device, torch.bfloat16).eval()
    theirs = theirs.to(scale.device, torch.bfloat16)
    yield "| prompts | words | labkit, words a second | generate, static cache | ratio |"
    yield "|---:|---|---:|---:|---:|"
    for prompts in (1, 16):
        tokens = torch.randint(0, scale.vocabulary, (prompts, 8))
        for words, how in (
            ("best", Sampling(length=scale.new, temperature=0)),
            ("drawn", Sampling(length=scale.new, temperature=0.9, top_p=0.9)),
        ):
            mine, their, ratio = compare(
                partial(sample, ours, tokens.tolist(), how),
                partial(
                    generate, theirs, tokens.to(scale.device), drawn=words == "drawn",
                    new=scale.new, cache_implementation="static",
                ),
                3 if scale.gpu else 1,
            )  # fmt: skip
            ours_a, theirs_a = (prompts * scale.new / taken for taken in (mine, their))
            yield f"| {prompts} | {words} | {ours_a:,.0f} | {theirs_a:,.0f} | {ratio:.2f} |"


SECTIONS: dict[str, Callable[[Scale], Iterator[str]]] = {
    "attention": attention,
    "gpt": gpt,
    "encoders": encoders,
    "memory": memory,
    "orders": orders,
    "writing": writing,
}


def main() -> None:
    """Print the tables of the chosen sections."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", help=f"which of: {', '.join(SECTIONS)} [all]")
    parser.add_argument("--seconds", type=float, default=15.0, help="time for each row [15]")
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"invalid choice: '{unknown[0]}' (choose from {', '.join(SECTIONS)})")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = options.tiny or device == "cpu"
    scale = tiny(device) if small else Scale(device, options.seconds)
    print(machine() + (" · tiny sizes: the figures mean nothing" if small else ""))
    for name in options.sections or SECTIONS:
        print(f"\n{name}: {(SECTIONS[name].__doc__ or '').strip()}\n", flush=True)
        for line in SECTIONS[name](scale):
            print(line, flush=True)


if __name__ == "__main__":
    main()
