"""Where a word stands: attention alone could not tell.

Learned positions (GPT, BERT), sinusoids (Vaswani et al. 2017, section 3.5), and sinusoids of a
distance (Dai et al. 2019, section 3.3), which know no absolute place at all.
"""

import math

import torch
from torch import Tensor, nn


def check_length(length: int, context: int) -> None:
    """Refuse a text that is longer than the model has positions for."""
    if length > context:
        raise ValueError(
            f"the text has {length} tokens, the model has positions for {context}: "
            f"shorten the text or build the model with context={length}"
        )


def sinusoids(places_T: Tensor, width: int) -> Tensor:
    """sin and cos of each place at width / 2 wave lengths from 2 pi to 10,000 * 2 pi: [T, D]."""
    if width % 2:
        raise ValueError(f"sinusoids come in pairs of sine and cosine: width {width} is odd")
    steps = torch.arange(0, width, 2, device=places_T.device, dtype=torch.float32)
    frequencies = torch.exp(-math.log(10_000.0) / width * steps)
    angles = places_T.float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class LearnedPositions(nn.Module):
    """One vector for each place of the text, learned like a word's."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.context = context
        self.weight = nn.Parameter(torch.empty(context, width).normal_(std=0.02))

    def forward(self, length: int, *, start: int = 0) -> Tensor:
        """The vectors of places start .. start + length: [T, D]."""
        check_length(start + length, self.context)
        return self.weight[start : start + length]
