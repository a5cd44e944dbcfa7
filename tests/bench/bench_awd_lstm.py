"""One training step of AWD-LSTM against the same step of bare nn.LSTM layers of the same sizes.

    python tests/bench/bench_awd_lstm.py

Both read the same batch and do all of a step: forward, loss over all words with the head tied to
the words, backward, clipping, AdamW. AWD-LSTM drops all that it drops and adds AR and TAR. The
steps of the two take turns, so that what else the machine does falls on both.
"""

import argparse
import statistics
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.blocks import LanguageModel
from labkit.heads import NextWord
from labkit.models.awd_lstm import AWDLSTM, AWDLSTMConfig
from labkit.recurrence import activation, temporal_activation


class Bare(nn.Module):
    """The same layers without any dropout: nn.Embedding, nn.LSTM, a tied nn.Linear."""

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        widths = [config.width, *[config.inner] * (config.layers - 1), config.width]
        self.layers = nn.ModuleList(
            nn.LSTM(given, made, batch_first=True) for given, made in pairwise(widths)
        )
        self.words = nn.Linear(config.width, config.vocabulary, bias=False)
        self.words.weight = self.token.weight

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy."""
        x = self.token(tokens)
        for lstm in self.layers:
            x, _ = lstm(x)
        return F.cross_entropy(self.words(x).flatten(0, 1), targets.flatten())


class Regularised(nn.Module):
    """Ours."""

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        backbone = AWDLSTM(config)
        self.model = LanguageModel(backbone, NextWord(backbone.token))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy, AR and TAR."""
        states = self.model.backbone(tokens)
        word = self.model.head.losses_N(states.hidden.flatten(0, 1), targets.flatten()).mean()
        raw, dropped = states.layers[-2:]
        return word + 2.0 * activation(dropped).mean() + temporal_activation(raw).mean()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, text: Tensor) -> float:
    """Do one step and return its seconds."""
    start = time.perf_counter()
    model.loss(text[:, :-1], text[:, 1:]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the seconds of a step and their ratio for each size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each model")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads, medians of {arguments.steps}")
    print(f"{'width':>6}{'inner':>7}{'words':>8}{'batch':>7}{'length':>8}"
          f"{'nn.LSTM s':>11}{'AWD s':>8}{'ratio':>7}")  # fmt: skip
    for width, inner, words, rows, length in (
        (128, 256, 2_000, 32, 64),
        (256, 512, 8_000, 32, 64),
        (400, 1150, 10_000, 20, 70),
    ):
        torch.manual_seed(0)
        config = AWDLSTMConfig(words, width, inner)
        text = torch.randint(words, (rows, length + 1))
        models = [Bare(config), Regularised(config)]
        optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, fused=True) for m in models]
        seconds: list[list[float]] = [[], []]
        for number in range(arguments.steps + 2):
            for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                taken = step(model, optimizer, text)
                if number >= 2:  # the first steps warm up
                    seconds[i].append(taken)
        bare, ours = (statistics.median(times) for times in seconds)
        print(f"{width:>6}{inner:>7}{words:>8,}{rows:>7}{length:>8}"
              f"{bare:>11.3f}{ours:>8.3f}{ours / bare:>7.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
