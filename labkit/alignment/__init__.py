"""From a model that predicts text to one that answers: rollouts, policy gradients, exact measures.

Read `preferences.py` first: fine-tuning on answers, reward models and DPO. Then `rollouts.py`: a
policy writes answers, and a reward says how good each one is; and `gradients.py`: REINFORCE, RLOO,
PPO and GRPO, objectives for the same `Trainer`. `choosing.py` needs no training. `exact.py`
measures any policy by a list of all answers (`labkit.world.optimal`).
"""

from labkit.alignment.choosing import best_of, rejection_sample
from labkit.alignment.exact import (
    Measured,
    Question,
    best_policies,
    ceiling,
    frontier,
    gold,
    measured,
    policies,
)
from labkit.alignment.gradients import GRPO, PPO, Reinforce
from labkit.alignment.rollouts import Rollout, Rollouts, reference_of

__all__ = [
    "GRPO",
    "PPO",
    "Measured",
    "Question",
    "Reinforce",
    "Rollout",
    "Rollouts",
    "best_of",
    "best_policies",
    "ceiling",
    "frontier",
    "gold",
    "measured",
    "policies",
    "reference_of",
    "rejection_sample",
]
