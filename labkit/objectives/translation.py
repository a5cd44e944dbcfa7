"""Translation: predict each word of the target from the source and the target words before it.

Sutskever et al. 2014, equation 1; Vaswani et al. 2017, sections 3.1 and 5.4 (label smoothing).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from labkit.blocks import States, check_reads_source
from labkit.chance import Chance
from labkit.checks import check_not_negative, check_whole
from labkit.corpus import Batch
from labkit.heads import exact
from labkit.masking import real_keys
from labkit.models.transformer import teacher_forced
from labkit.objectives.base import Objective, Predicted, Targets, Term, check_labels
from labkit.objectives.memory import Memory
from labkit.tensor_checks import check_targets


@dataclass(frozen=True, kw_only=True, eq=False)
class Translation(Objective):
    """-mean log p(word | source, the right words before it), and how often the best is right.

    The tokens of a batch are the source, its labels [B, T] the target: the last is the word that
    ends it, and the rest of a shorter row is below zero.
    """

    name: ClassVar[str] = "words"
    one_state_per_word: ClassVar[bool] = False
    begin: int
    """What the decoder reads first."""
    smoothing: float = 0.0
    """The share of the target that is spread evenly over all words; the term stays unsmoothed."""

    def __post_init__(self) -> None:
        check_whole("begin", self.begin)
        check_not_negative(smoothing=self.smoothing)
        if self.smoothing >= 1:
            raise ValueError(f"smoothing is {self.smoothing}: give a share below 1, such as 0.1")

    def check_model(self, model: Any) -> None:
        """Refuse a model that reads no source."""
        super().check_model(model)
        check_reads_source(model)

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The words of the target, each at the position that predicts it."""
        labels = batch.labels
        if labels is None or labels.dim() != 2:
            found = "none" if labels is None else f"shape {tuple(labels.shape)}"
            raise ValueError(f"labels: {found}; give the words of each target, [B, T]")
        check_labels(self.name, labels, *labels.shape)
        words = labels >= 0
        if bool((words[:, 1:] & ~words[:, :-1]).any()):
            raise ValueError("a label below zero comes before a word of the target: only the rest "
                             "of a shorter row may be below zero")  # fmt: skip
        predicted = Predicted.where(words, labels)
        count = len(predicted.targets_N)
        return Targets.of(
            batch, {self.name: predicted}, {f"{self.name} right": count, "even": count}
        )

    def forward(
        self, model: Any, targets: Targets, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """The decoder's states, each of which has read the source and the right words so far."""
        self.check_model(model)
        source = targets.inputs
        assert source.labels is not None
        given_BT = teacher_forced(source.labels.clamp(min=0), self.begin)
        mask = real_keys(source.real) if targets.padded else None
        return model.backbone(given_BT, source_BK=source.tokens, source_mask=mask), None

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """Minus the log-probability of the right words, and of all words alike."""
        [scores_NV] = self.scores(model, states, targets).values()
        answers_N, count = targets.predicted[self.name].targets_N, targets.counts[self.name]
        check_targets(answers_N, scores_NV.shape[-1])
        log_NV = exact(scores_NV).log_softmax(dim=-1)
        right = (scores_NV.argmax(dim=-1) == answers_N).sum().to(log_NV.dtype)
        loss = -log_NV.gather(1, answers_N[:, None]).sum()
        return {
            self.name: Term(loss, count, 1 - self.smoothing),
            "even": Term(-log_NV.mean(dim=-1).sum(), count, self.smoothing),
            f"{self.name} right": Term(right, count, 0.0),
        }
