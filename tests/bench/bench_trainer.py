"""The benchmark of training, with transformers' Trainer beside ours.

python tests/bench/bench_trainer.py [overhead] [transformers] [quality] [gpu] [--seconds 60]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from labkit.bench import SECTIONS, SIZES, Size, Windows, in_turns, noise, tables, trained
from labkit.plans import Plan


class Dataset(torch.utils.data.Dataset):
    """The same windows, row by row, as transformers wants them."""

    def __init__(self, text: Windows, rows: int) -> None:
        self.text, self.rows = text, rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.text.text[index : index + self.text.length]
        return {"input_ids": tokens, "labels": tokens}


def theirs(size: Size) -> Iterator[Any]:
    """transformers' Trainer with a GPT-2 of the same size, step by step."""
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

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
        )  # fmt: skip
        yield from steps_of(
            lambda callback: transformers.Trainer(
                GPT2LMHeadModel(config), arguments, train_dataset=Dataset(noise(size), 900_000),
                callbacks=[callback],
            ),
            TrainerCallback,
        )  # fmt: skip


def steps_of(make: Any, base: Any) -> Iterator[Any]:
    """Their loop calls us; a thread that hands over after each step turns it inside out."""
    import threading

    go, done = threading.Semaphore(0), threading.Semaphore(0)

    class Hand(base):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            done.release()
            go.acquire()

        def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            pass

    def work() -> None:
        trainer = make(Hand())
        trainer.remove_callback(__import__("transformers").PrinterCallback)
        go.acquire()
        trainer.train()

    threading.Thread(target=work, daemon=True).start()
    while True:
        go.release()
        done.acquire()
        yield None


def transformers(seconds: float) -> Iterator[str]:
    """Our trainer against transformers' with a GPT-2 of the same size."""
    yield "| model | transformers' Trainer | labkit | times as fast |"
    yield "|---|---|---|---|"
    for size in SIZES:
        plan = Plan(steps=10**6, warmup=100, precision="float32", device="cpu")
        runs = [theirs(size), trained(size.model(), noise(size), plan)]
        chunk = 10 if size.width < 200 else 2
        them, us = in_turns(runs, seconds=seconds, chunk=chunk, settle=lambda: None)
        yield f"| {size} | {1000 * them:.2f} ms | {1000 * us:.2f} ms | {them / us:.2f} × |"


if __name__ == "__main__":
    begun = time.perf_counter()
    everything = {**SECTIONS, "transformers": transformers}
    code = tables(argparse.ArgumentParser(description=__doc__), sys.argv[1:], everything)
    print(f"\n{time.perf_counter() - begun:.0f} s in all")
    raise SystemExit(code)
