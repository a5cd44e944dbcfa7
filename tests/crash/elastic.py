"""For torchrun: a training script in which one worker is killed, once for each step it is given.

torchrun --nproc-per-node=2 --max-restarts=3 -m tests.crash.elastic KIND FOLDER 3,5
"""

import os
import signal
import sys
from pathlib import Path

import torch

from labkit.objectives import NextToken
from labkit.plan import Plan
from labkit.trainer import Trainer

from .tiny import Text, gpt


def train(kind: str, folder: Path, fatal: list[int]) -> str:
    """Train; the second worker dies at these steps, one in each life."""
    torch.set_num_threads(1)
    deaths = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    plan = Plan(steps=8, rate=3e-3, save_every=2, processes=kind)  # type: ignore[arg-type]
    trainer = Trainer(gpt(), NextToken(), Text(rows=8, padded=True), plan)
    for report in trainer.resume(folder):
        if deaths < len(fatal) and report.step == fatal[deaths] and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
    return f"done after {deaths} deaths"


if __name__ == "__main__":
    said = train(sys.argv[1], Path(sys.argv[2]), [int(step) for step in sys.argv[3].split(",")])
    if os.environ["RANK"] == "0":
        print(said)
