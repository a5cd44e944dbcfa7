"""A policy gradient by two processes, forked from one; prints its rewards and weights.

`python -m tests.crash.aligned`
"""

import json

import torch

from labkit import alignment
from labkit.alignment import GRPO, Rollouts
from labkit.plan import Plan
from labkit.sampling import Sampling
from labkit.trainer import Trainer

from .several import together
from .tiny import gpt

STEPS = 6


def train(kind: str) -> dict[str, list[float]]:
    """Six steps of GRPO towards long answers, two steps on each rollout."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = gpt(dropout=0.0)
    rollouts = Rollouts(
        model=model, reference=alignment.reference_of(model), prompts=[[3], [4, 5], [6], [7]],
        reward=lambda prompts, answers: [float(len(set(answer))) for answer in answers],
        settings=Sampling(length=5, stop=(2,)), batch=4, group=4, epochs=2,
    )  # fmt: skip
    plan = Plan(steps=STEPS, rate=1e-2, processes=kind, precision="float32", device="cpu")  # type: ignore[arg-type]
    trainer = Trainer(model, GRPO(group=4), rollouts, plan, progress=False)
    rewards = [float(report.metrics["reward"]) for report in trainer.run()]
    learning = [weight.flatten()[:4] for name, weight in model.named_parameters()
                if weight.requires_grad]  # fmt: skip
    return {"rewards": rewards, "weights": torch.cat(learning).tolist()}


if __name__ == "__main__":
    print(json.dumps(together(2, {"two": lambda: train("ddp")})["two"]))
