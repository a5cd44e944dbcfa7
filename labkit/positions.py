"""Where a word stands: attention alone could not tell.

Learned positions (GPT, BERT), sinusoids (Vaswani et al. 2017, section 3.5), and sinusoids of a
distance (Dai et al. 2019, section 3.3), which know no absolute place at all.
"""

import torch
from torch import Tensor, nn


def check_length(length: int, context: int) -> None:
    """Refuse a text that is longer than the model has positions for."""
    if length > context:
        raise ValueError(
            f"the text has {length} tokens, the model has positions for {context}: "
            f"shorten the text or build the model with context={length}"
        )


def sinusoids(places_T: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """sin and cos of each place at width / 2 wave lengths from 2 pi to 10,000 * 2 pi: [T, D]."""
    if width % 2:
        raise ValueError(f"sinusoids come in pairs of sine and cosine: width {width} is odd")
    # A short float could not even count the places.
    exact = torch.promote_types(dtype, torch.float32)
    steps = torch.arange(0, width, 2, device=places_T.device).to(exact)
    frequencies = 1 / torch.pow(10_000, steps / width)
    angles = places_T.to(exact)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype)


def distances(queries: int, keys: int, *, device: torch.device | str | None = None) -> Tensor:
    """All distances from a query to a key, the farthest past first: keys - 1 ... 1 - queries."""
    return torch.arange(keys - 1, -queries, -1, device=device)


def by_distance(scores_BHQR: Tensor, places: Tensor, keys: int) -> Tensor:
    """The score of each query and key, picked from a query's scores of all distances.

    `places` [Q] or [B, Q] says where among the keys each query stands; the scores are in the order
    of `distances`, so that query i finds key j in column (keys - 1) - (place_i - j).
    """
    key_K = torch.arange(keys, device=places.device)
    column = keys - 1 - places[..., :, None] + key_K
    batch, heads, queries, _ = scores_BHQR.shape
    column = column.view(-1, 1, queries, keys).expand(batch, heads, -1, -1)
    return scores_BHQR.gather(-1, column)


class LearnedPositions(nn.Module):
    """One vector for each place of the text, learned like a word's.

    RoBERTa's table starts with `unused` rows that no place of a text uses.
    """

    def __init__(self, context: int, width: int, *, unused: int = 0) -> None:
        super().__init__()
        self.context, self.unused = context, unused
        self.weight = nn.Parameter(torch.empty(unused + context, width).normal_(std=0.02))

    def forward(self, length: int, *, start: int = 0) -> Tensor:
        """The vectors of places start .. start + length: [T, D]."""
        check_length(start + length, self.context)
        return self.weight[self.unused + start : self.unused + start + length]
