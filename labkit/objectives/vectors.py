"""Word vectors: tell the words that stand near a word from words drawn at random.

Mikolov et al. 2013b, section 2. The model is `WordVectors`; who stands near whom, and which words
are noise, is decided here, the same for every row whatever other rows stand beside it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.blocks import States
from labkit.chance import Chance
from labkit.checks import check_not_negative, check_whole
from labkit.corpus import Batch
from labkit.masking import real_keys
from labkit.models.word_vectors import (
    Contexts,
    close_gaps,
    contexts,
    draw_noise,
    keep_probabilities,
    noise_distribution,
    subsampled,
)
from labkit.objectives.base import Objective, Predicted, Targets, Term
from labkit.objectives.memory import Memory
from labkit.tensor_checks import check_tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class NearWords(Objective):
    """What skip-gram and CBOW share: who stands near whom, and the noise."""

    counts: Tensor
    """How often each word [V] stands in the training text; special tokens 0 times."""
    reach: int = 5
    """The widest window; the actual one is drawn from 1 to this for each word."""
    noise: int = 5
    """How many words are drawn beside each right one."""
    threshold: float | None = 1e-3
    """Leave out words at random that are more frequent than this; None keeps all."""

    def __post_init__(self) -> None:
        check_whole("reach", self.reach, least=1)
        check_whole("noise", self.noise, least=1)
        if self.threshold is not None:
            check_not_negative(threshold=self.threshold)

    def around(self, batch: Batch, chance: Chance) -> Contexts:
        """The positions (numbered through the batch) of the words that stand near each word."""
        check_tokens(batch.tokens, len(self.counts))
        tokens, length = batch.tokens, batch.tokens.shape[1]
        counts = self.counts.to(tokens.device)
        kept = batch.real & (counts[tokens] > 0)
        if self.threshold is not None:
            keep = keep_probabilities(counts, self.threshold)
            kept = kept & subsampled(tokens, keep, chance.uniform("keep", length))
        reach = 1 + chance.integers("reach", length, self.reach)
        position = torch.arange(tokens.numel(), device=tokens.device).view(tokens.shape)
        position, reach, real = (close_gaps(each, kept) for each in (position, reach, kept))
        documents = None if batch.documents is None else close_gaps(batch.documents, kept)
        return contexts(position, real, reach, self.reach, documents)

    def check_model(self, model: Any) -> None:
        """Refuse a backbone that does not tell words from noise."""
        super().check_model(model)
        if not hasattr(model.backbone, "skip_gram"):
            raise ValueError(
                f"{type(model.backbone).__name__} does not tell words from noise: use WordVectors"
            )

    def forward(
        self, model: Any, targets: Targets, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """The vectors of the words; without attention, documents need no mask."""
        self.check_model(model)
        inputs = targets.inputs
        mask = real_keys(inputs.real) if targets.padded else None
        return model.backbone(inputs.tokens, mask=mask), None

    def noise_words(self, batch: Batch, chance: Chance, each: int) -> Tensor:
        """Words drawn as noise, `each` times for each position: [B * T, each, noise]."""
        length = batch.tokens.shape[1]
        uniform = chance.uniform("noise", length * each * self.noise)
        p_V = noise_distribution(self.counts).to(uniform.device)
        return draw_noise(p_V, uniform).view(-1, each, self.noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class SkipGram(NearWords):
    """From each word, tell each of its neighbours from noise.

    -mean over pairs of log s(u_near . v_centre) + sum over noise of log s(-u_noise . v_centre)
    """

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """One prediction for each neighbour of each word."""
        found = self.around(batch, chance)
        which_N, column_N = found.present_NK.nonzero(as_tuple=True)
        centres_N, near_N = found.centres_N[which_N], found.context_NK[which_N, column_N]
        noise = self.noise_words(batch, chance, 2 * self.reach)[centres_N, column_N]
        tokens, length = batch.tokens.flatten(), batch.tokens.shape[1]
        predicted = Predicted(centres_N // length, centres_N % length, tokens[near_N])
        return Targets.of(batch, {"pair": predicted}, sampled=(tokens[centres_N], noise))

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """The loss of all pairs."""
        centres_N, noise = targets.sampled
        targets_N = targets.predicted["pair"].targets_N
        losses_N = model.backbone.skip_gram(centres_N, targets_N, noise)
        return {"pair": Term(losses_N.sum(), targets.counts["pair"])}

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """How well each word of the vocabulary goes with the centre."""
        rows_N, positions_N, _ = targets.predicted["pair"]
        return {"pair": states.hidden[rows_N, positions_N] @ model.backbone.output.weight.T}


@dataclass(frozen=True, kw_only=True, eq=False)
class CBOW(NearWords):
    """From the mean of its neighbours, tell each word from noise."""

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """One prediction for each word that has neighbours."""
        found = self.around(batch, chance)
        noise = self.noise_words(batch, chance, 1)[found.centres_N, 0]
        tokens, length = batch.tokens.flatten(), batch.tokens.shape[1]
        centres_N = found.centres_N
        predicted = Predicted(centres_N // length, centres_N % length, tokens[centres_N])
        near_NK = tokens[found.context_NK]
        sampled = (near_NK, found.present_NK, noise)
        return Targets.of(batch, {"word": predicted}, sampled=sampled)

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """The loss of all words."""
        near_NK, present_NK, noise = targets.sampled
        targets_N = targets.predicted["word"].targets_N
        losses_N = model.backbone.cbow(near_NK, present_NK, targets_N, noise)
        return {"word": Term(losses_N.sum(), targets.counts["word"])}

    def scores(self, model: Any, states: States, targets: Targets) -> dict[str, Tensor]:
        """How well each word of the vocabulary goes with the neighbours."""
        near_NK, present_NK, _ = targets.sampled
        mean_ND = model.backbone.mean_vectors(near_NK, present_NK)
        return {"word": mean_ND @ model.backbone.output.weight.T}
