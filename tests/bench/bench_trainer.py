"""How fast training is, against a bare loop and transformers' Trainer.

    python -m labkit bench trainer
    python tests/bench/bench_trainer.py [overhead] [transformers] [parts] [precision] [attention]
        [--seconds 60]

Each figure is a ratio of two runs that take turns on the same machine, so that what else the
machine does falls on both. Tables name the machine; `bench gpu` is about GPUs.
"""

import argparse
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.models import recipes
from labkit.attention import attention_weights
from labkit.blocks import LanguageModel
from labkit.corpus import Batch
from labkit.fast import keep_memory
from labkit.heads import NextWord
from labkit.keeping.computing import precision_of
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import NextToken
from labkit.optim import decays
from labkit.plan import Plan
from labkit.trainer import Trainer, evaluate

Steps = Iterator[Any]


class Size(NamedTuple):
    """A GPT and its batches."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    vocabulary: int = 65
    rotary: bool = False

    def __str__(self) -> str:
        return f"{self.layers} × {self.width}, batch {self.batch} × {self.context}"

    def model(self) -> nn.Module:
        """A fresh model."""
        torch.manual_seed(0)
        sizes = GPTConfig(
            self.vocabulary, self.width, self.layers, self.heads, self.context + 1,
            rotary=self.rotary, dropout=0.0,
        )  # fmt: skip
        backbone = GPT(sizes)
        return LanguageModel(backbone, NextWord(backbone.token))


# The first is nanoGPT's size for a CPU.
SIZES = (Size(4, 4, 128, 64, 12), Size(8, 8, 256, 256, 4), Size(8, 8, 512, 256, 4))
NARROW = Size(4, 2, 64, 64, 12)


@dataclass(frozen=True)
class Windows:
    """Random places of a long text, as nanoGPT takes them."""

    text: Tensor
    rows: int
    length: int

    def tokens(self, step: int) -> Tensor:
        """The tokens of one step [B, T + 1]: each but the last predicts the next."""
        chance = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.text) - self.length - 1, (self.rows, 1), generator=chance)
        return self.text[starts + torch.arange(self.length + 1)]

    def at(self, step: int) -> Batch:
        """The same as a batch."""
        return Batch.of(self.tokens(step))


def noise(size: Size) -> Windows:
    """A text of random words: for speed, any will do."""
    chance = torch.Generator().manual_seed(1)
    text = torch.randint(size.vocabulary, (1_000_000,), generator=chance)
    return Windows(text, size.batch, size.context)


def bare_loop(
    model: Callable[..., Any], text: Windows, plan: Plan, *, device: str = "cpu", half: bool = False
) -> Steps:
    """What one writes without a trainer: data, loss, clip, AdamW, schedule, now and then a line."""
    assert isinstance(model, nn.Module)
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if decays(n, p) == decay], "weight_decay": weight}
        for decay, weight in ((True, plan.decay), (False, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=plan.betas, fused=True)
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * plan.share(step)
        tokens = text.tokens(step).to(device)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            float(loss.detach())
        yield loss


def trained(model: nn.Module, text: Windows, plan: Plan, folder: str | None = None) -> Steps:
    """The same by the trainer; now and then the reader's line."""
    for report in Trainer(model, NextToken(), text, plan, progress=False).resume(folder):
        if report.step % 10 == 0:
            str(report)
        yield report


def in_turns(
    runs: Sequence[Steps], *, seconds: float, chunk: int, settle: Callable[[], None]
) -> list[float]:
    """Seconds per step of each run, the median over chunks that take turns."""
    for run in runs:
        for _ in range(chunk):
            next(run)
    settle()
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for taken, run in zip(times, runs, strict=True):
            begun = time.perf_counter()
            for _ in range(chunk):
                next(run)
            settle()
            taken.append((time.perf_counter() - begun) / chunk)
    return [statistics.median(taken) for taken in times]


def overhead(seconds: float) -> Iterator[str]:
    """The trainer against a bare loop around the same model."""
    yield "| model | bare loop | trainer | trainer with checkpoints | overhead | with checkpoints |"
    yield "|---|---|---|---|---|---|"
    for size in SIZES:
        plan = Plan(steps=10**6, warmup=100, save_every=200, precision="float32", device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            runs = [
                bare_loop(size.model(), noise(size), plan),
                trained(size.model(), noise(size), plan),
                trained(size.model(), noise(size), plan, folder),
            ]
            chunk = 10 if size.width < 200 else 1
            times = in_turns(runs, seconds=seconds, chunk=chunk, settle=lambda: None)
            for run in runs[1:]:
                run.close()  # type: ignore[attr-defined]
        bare, ours, saving = (1000 * each for each in times)
        yield (
            f"| {size} | {bare:.2f} ms | {ours:.2f} ms | {saving:.2f} ms | {ours / bare - 1:+.1%} "
            f"| {saving / bare - 1:+.1%} |"
        )


def precision(seconds: float) -> Iterator[str]:
    """A step in 16 bits against one in 32, by width: what precision="auto" is chosen by."""
    yield "| model | float32 | bfloat16 | faster |"
    yield "|---|---|---|---|"
    for size in (NARROW, *SIZES):
        runs = [
            trained(
                size.model(),
                noise(size),
                Plan(steps=10**6, warmup=100, precision=name, device="cpu"),
            )
            for name in ("float32", "bfloat16")
        ]
        times = in_turns(runs, seconds=seconds, chunk=2, settle=lambda: None)
        for run in runs:
            run.close()  # type: ignore[attr-defined]
        wide, narrow = (1000 * each for each in times)
        yield f"| {size} | {wide:.2f} ms | {narrow:.2f} ms | {wide / narrow:.2f} times |"
    yield ""
    yield from learned_in_16_bits()


def learned_in_16_bits(steps: int = 800) -> Iterator[str]:
    """What is learned with the notebooks' recipe in each precision."""
    known = language("village", recipes.LENGTH)
    width = recipes.WIDTH
    size = Size(recipes.LAYERS, width // 32, width, recipes.LENGTH, recipes.BATCH, known.vocabulary)
    for name in ("float32", "bfloat16"):
        model, plan = size.model(), recipes.plan(steps, precision=name, device="cpu")
        for _ in trained(model, Windows(known.text, size.batch, size.context), plan):
            pass
        gap = evaluate(model, NextToken(), known.held_out).loss - known.floor
        yield f"{name}: {gap:.4f} nats above the floor of the village after {steps} steps"


def attention(seconds: float) -> Iterator[str]:
    """Attention there and back, by the library's kernel and by the formula: `attend` chooses."""
    ways = "float32: kernel | formula | bfloat16: kernel | formula"
    yield f"| texts × heads × length × width of a head | {ways} |"
    yield "|---|---|---|---|---|"
    shapes = [(size.batch, size.heads, size.context, size.width // size.heads) for size in SIZES]
    for shape in [*shapes, (2, 12, 512, 64), (1, 12, 1024, 64)]:
        runs = [
            attending(shape, dtype, formula)
            for dtype in (torch.float32, torch.bfloat16)
            for formula in (False, True)
        ]
        times = in_turns(runs, seconds=seconds / 4, chunk=2, settle=lambda: None)
        cells = " | ".join(f"{1000 * taken:.2f} ms" for taken in times)
        yield f"| {' × '.join(map(str, shape))} | {cells} |"


def attending(shape: tuple[int, int, int, int], dtype: torch.dtype, formula: bool) -> Steps:
    """Causal attention and its gradients, again and again."""
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    hidden = torch.full((shape[2], shape[2]), -math.inf, dtype=dtype).triu_(1)
    keep_memory()
    while True:
        if formula:
            y = attention_weights(q, k, bias_BHQK=hidden) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        yield torch.autograd.grad(y, (q, k, v), y.detach())


# ---- the course's language ---------------------------------------------------------------------


class Language(NamedTuple):
    """Text of the course's language, and held-out documents with what is known of each word."""

    text: Tensor
    held_out: list[Batch]
    losses: Tensor
    """The exact loss of each word of the held-out documents, one after the other: the floor."""
    near: Tensor
    """The same for one who knows no more than the last `NEAR` words."""
    vocabulary: int

    @property
    def floor(self) -> float:
        """The lowest loss that is possible."""
        return float(self.losses.mean())


NEAR = 16


def language(name: str, context: int, words: int = 3_000_000) -> Language:
    """Sample a text to learn from and documents to be tested on, up to `context` words of each."""
    import numpy as np

    from labkit.world import load_world

    world = load_world(name)
    text = np.concatenate([d.numbers for d in world.sample(words=words, seed=1, split=None)])
    tests = [d.numbers[:context] for d in world.sample(documents=256, seed=2, split=None)]
    spelled = [[world.vocabulary[number] for number in numbers] for numbers in tests]
    exact, near = (
        -torch.from_numpy(np.concatenate(world.log_probabilities(spelled, reach=reach)))
        for reach in (None, NEAR)
    )
    # What stands before a document is the end of the one before it.
    rows = [torch.tensor([0, *numbers.tolist()]) for numbers in tests]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real = torch.arange(padded.shape[1]) < torch.tensor([[len(row)] for row in rows])
    whole = Batch.of(padded, real).micro(8)
    return Language(torch.from_numpy(text).long(), whole, exact, near, len(world.vocabulary))


# ---- against transformers ---------------------------------------------------------------------


class Dataset(torch.utils.data.Dataset):
    """The same windows, row by row, as transformers wants them."""

    def __init__(self, text: Windows, rows: int) -> None:
        self.text, self.rows = text, rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.text.text[index : index + self.text.length]
        return {"input_ids": tokens, "labels": tokens}


def transformers_trainer(size: Size, half: bool, done: Callable[[], None]) -> None:
    """transformers' Trainer with a GPT-2 of the same size; `done` is called after each step."""
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

    class AfterEachStep(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            done()

    transformers.logging.set_verbosity_error()
    config = GPT2Config(
        vocab_size=size.vocabulary, n_positions=size.context, n_embd=size.width,
        n_layer=size.layers, n_head=size.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=size.batch, max_steps=10**6, learning_rate=1e-3,
            logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
            optim="adamw_torch_fused", lr_scheduler_type="cosine", dataloader_num_workers=0,
            bf16=half,
        )  # fmt: skip
        trainer = transformers.Trainer(
            GPT2LMHeadModel(config), arguments, train_dataset=Dataset(noise(size), 900_000),
            callbacks=[AfterEachStep()],
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()


# Who trains, in which precision, and whether compiled.
RIVALS = {
    "transformers": ("transformers", "float32", False),
    "transformers-bfloat16": ("transformers", "bfloat16", False),
    "float32": ("labkit", "float32", False),
    "compiled": ("labkit", "float32", True),
    "auto": ("labkit", "auto", False),
}


class Elsewhere(Iterator[None]):
    """A run in a process of its own, step by step.

    In one process, the threads that one run has left waiting slow down the other.
    """

    def __init__(self, rival: str, size: Size) -> None:
        words = [rival, str(SIZES.index(size))]
        command = [sys.executable, __file__, "--rival", *words]
        self.name = " ".join(words)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __next__(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise RuntimeError(f"the run {self.name} ended: what it said is above")

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def rival(name: str, size: Size) -> None:
    """Such a process: a step for each line that it is sent, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def done() -> None:
        answers.write("\n")
        answers.flush()
        if not sys.stdin.readline():
            raise SystemExit

    sys.stdin.readline()
    whose, precision, compiled = RIVALS[name]
    if whose == "transformers":
        transformers_trainer(size, precision == "bfloat16", done)
    plan = Plan(steps=10**6, warmup=100, precision=precision, compile=compiled, device="cpu")
    for _ in trained(size.model(), noise(size), plan):
        done()


def against_transformers(seconds: float) -> Iterator[str]:
    """Our trainer and transformers', with a GPT-2 of the same size, and how many times as fast."""
    yield (
        "| model | transformers' Trainer | in bfloat16 | labkit, float32 | compiled "
        '| labkit, precision="auto" |'
    )
    yield "|---|---|---|---|---|---|"
    # In brackets: times as fast as theirs in float32; of "auto", also as theirs in bfloat16.
    for size in SIZES:
        chunk = 10 if size.width < 200 else 1
        runs = [Elsewhere(name, size) for name in RIVALS]
        times = in_turns(runs, seconds=seconds, chunk=chunk, settle=lambda: None)
        for run in runs:
            run.close()
        them, them_half, *ours, auto = (1000 * taken for taken in times)
        cells = [f"{taken:.2f} ms ({them / taken:.2f} ×)" for taken in ours]
        chosen = precision_of(Plan(steps=1), torch.device("cpu"), size.width)
        said = str(chosen).removeprefix("torch.")
        cells.append(f"{said}: {auto:.2f} ms ({them / auto:.2f} ×, {them_half / auto:.2f} ×)")
        yield f"| {size} | {them:.2f} ms | {them_half:.2f} ms | {' | '.join(cells)} |"


# What a step of a GPT consists of, by the names of torch's operations.
KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "attention": ("aten::_scaled_dot_product",),
    "GELU": ("aten::gelu",),
    "norms": ("aten::native_layer_norm",),
    "clip and AdamW": ("aten::_fused_adamw", "aten::linalg_vector_norm"),
}


def parts(seconds: float) -> Iterator[str]:
    """What a step in float32 spends its time on: the first two any trainer has to pay."""
    from torch.profiler import ProfilerActivity, profile

    yield f"| model | {' | '.join(KINDS)} | all else | a step |"
    yield "|---|" + "---|" * (len(KINDS) + 2)
    for size in SIZES:
        plan = Plan(steps=10**6, warmup=100, precision="float32", device="cpu")
        run = trained(size.model(), noise(size), plan)
        for _ in range(3):
            next(run)
        steps, end = 0, time.perf_counter() + seconds / 2
        with profile(activities=[ProfilerActivity.CPU]) as found:
            while steps < 2 or (time.perf_counter() < end and steps < 50):
                next(run)
                steps += 1
        times = {event.key: event.self_cpu_time_total / 1000 / steps
                 for event in found.key_averages()}  # fmt: skip
        cells = [sum(t for key, t in times.items() if key.startswith(k)) for k in KINDS.values()]
        whole = sum(times.values())
        said = " | ".join(f"{each:.2f} ms" for each in [*cells, whole - sum(cells), whole])
        yield f"| {size} | {said} |"


SECTIONS: dict[str, Callable[..., Iterator[str]]] = {
    "overhead": overhead,
    "transformers": against_transformers,
    "parts": parts,
    "precision": precision,
    "attention": attention,
}


def machine() -> str:
    """The machine, so that a table can be compared with another."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{_processor()}, {cores} cores, {torch.get_num_threads()} threads · {device} · "
        f"torch {torch.__version__} · Python {platform.python_version()}"
    )


def _processor() -> str:
    """The name of the processor where the system tells it."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor() or platform.machine()


def main(words: Sequence[str]) -> int:
    """Print the tables of the chosen sections."""
    parser = argparse.ArgumentParser(description="How fast training is.")
    parser.add_argument("sections", nargs="*", help=f"which of: {', '.join(SECTIONS)} [all]")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each row [60]")
    parser.add_argument("--rival", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.rival:
        rival(arguments.rival[0], SIZES[int(arguments.rival[1])])
        return 0
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"invalid choice: '{unknown[0]}' (choose from {', '.join(SECTIONS)})")
    print(machine())
    for name in arguments.sections or SECTIONS:
        print(f"\n{name}: {(SECTIONS[name].__doc__ or '').strip()}\n", flush=True)
        for line in SECTIONS[name](arguments.seconds):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
