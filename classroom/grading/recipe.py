"""nanoGPT's recipe for a minute on a processor: the baseline of `labkit speedrun`.

A file for the contest defines one function, `train`, like this one. Copy it and make it better. It
may use labkit's models or plain PyTorch; the language itself is out of bounds.
"""

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.models.gpt import GPT, GPTConfig

BLOCK, BATCH = 64, 12
PEAK, LAST, WARMUP = 1e-3, 1e-4, 100


def train(tokens_N: Tensor, vocabulary: int, seconds: float) -> Callable[[Tensor], Tensor]:
    """Train for this many seconds on a sequence of documents, each of which ends in token 0.

    Return a function. It gets rows [B, T], which begin with 0 as a document does, and returns the
    log probabilities [B, T, V] of the next word at each position.
    """
    torch.manual_seed(1337)
    gpt = GPT(GPTConfig(vocabulary, width=128, layers=4, heads=4, context=BLOCK, dropout=0.0))

    def log_p(rows_BT: Tensor) -> Tensor:
        states_BTD = gpt(rows_BT).layers[-1]
        return (states_BTD @ gpt.token.weight.mT).log_softmax(dim=-1)

    matrices = [weight for weight in gpt.parameters() if weight.dim() >= 2]
    others = [weight for weight in gpt.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99))
    begun, step = time.monotonic(), 0
    while (share := (time.monotonic() - begun) / (0.95 * seconds)) < 1:
        rate = LAST + 0.5 * (PEAK - LAST) * (1 + math.cos(math.pi * share))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARMUP)
        starts = torch.randint(len(tokens_N) - BLOCK - 1, (BATCH,))
        rows = torch.stack([tokens_N[start : start + BLOCK + 1] for start in starts.tolist()])
        loss = F.nll_loss(log_p(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        step += 1
    gpt.eval()
    return log_p
