"""What the checks of a model's inputs cost: their share of the time of a training step.

    python tests/bench/bench_checks.py [--steps 30]

The checks are timed inside the steps that they belong to, and both in seconds of the processor, so
that what else the machine does counts for neither.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch

from labkit.blocks import LanguageModel
from labkit.corpus import Batch
from labkit.heads import MaskedWord, NextWord
from labkit.models.bert import BERT, BERTConfig
from labkit.models.gpt import GPT, GPTConfig
from labkit.objectives import MaskedToken, NextToken
from labkit.objectives.base import check_labels
from labkit.plan import Plan
from labkit.tensor_checks import check_mask, check_segments, check_targets, check_tokens
from labkit.text.vocabulary import Vocabulary
from labkit.trainer import Trainer

CHECKS = (check_tokens, check_mask, check_segments, check_targets, check_labels)
WORDS = 1000
SPECIAL = Vocabulary(WORDS, pad=0, unk=1, cls=2, sep=3, mask=4)


class Same:
    """The same batch at every step."""

    def __init__(self, batch: int, length: int) -> None:
        generator = torch.Generator().manual_seed(0)
        tokens_BT = torch.randint(5, WORDS, (batch, length), generator=generator)
        self.batch = Batch.of(tokens_BT)

    def at(self, step: int) -> Batch:
        """A copy, whose tables are checked as those of any batch."""
        return Batch.of(self.batch.tokens.clone())


def gpt(width: int, layers: int) -> tuple[Any, Any]:
    """A GPT that predicts the next word."""
    backbone = GPT(GPTConfig(WORDS, width, layers, width // 16, 128))
    return LanguageModel(backbone, NextWord(backbone.token)), NextToken()


def bert(width: int, layers: int) -> tuple[Any, Any]:
    """A BERT that predicts hidden words."""
    backbone = BERT(BERTConfig(WORDS, width, layers, width // 16, 128))
    return LanguageModel(backbone, MaskedWord(backbone.token)), MaskedToken(vocabulary=SPECIAL)


def share(make: Callable[..., Any], size: tuple[int, int], rows: tuple[int, int], steps: int):
    """The median share of the checks in a step, and the median seconds of a step."""
    spent = [0.0]

    def timed(check: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return check(*given, **named)
            finally:
                spent[0] += time.process_time() - start

        return run

    model, objective = make(*size)
    trainer = Trainer(model, objective, Same(*rows), Plan(steps=steps), progress=False)
    shares, seconds = [], []
    with ExitStack() as stack:
        for check in CHECKS:
            for module in [m for n, m in sys.modules.items() if n.startswith("labkit") and m]:
                if getattr(module, check.__name__, None) is check:
                    stack.enter_context(patch.object(module, check.__name__, timed(check)))
        start = time.process_time()
        for _ in trainer.resume(None):
            whole = time.process_time() - start
            shares.append(spent[0] / whole)
            seconds.append(whole)
            spent[0], start = 0.0, time.process_time()
    return statistics.median(shares), statistics.median(seconds)


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    for name, make in (("GPT", gpt), ("BERT", bert)):
        for size, rows in (((64, 2), (16, 64)), ((128, 4), (16, 128))):
            part, whole = share(make, size, rows, steps)
            print(f"{name} {size[0]} × {size[1]}, rows {rows[0]} × {rows[1]}: the checks are "
                  f"{part:.2%} of a step of {1000 * whole:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
