"""XLNet's objective: predict the words of a text in a random order.

Yang et al. 2019, section 2. `hiding.order` draws the order; the masks of both streams follow it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from labkit.blocks import States, remember
from labkit.chance import Chance
from labkit.checks import check_choice, check_share, check_type, check_whole
from labkit.corpus import Batch
from labkit.masking import before, real_keys, same_segment, up_to
from labkit.objectives import hiding
from labkit.objectives.base import Continuing, Predicted, Targets, segments_of
from labkit.objectives.memory import Memory, recall
from labkit.objectives.words import first
from labkit.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, eq=False)
class Permutation(Continuing):
    """XLNet: -mean log p(x_(z_t) | x_(z_1) ... x_(z_(t-1))) for a random order z of each row.

    Special tokens are not predicted, and every position attends to them.
    """

    one_state_per_word: ClassVar[bool] = False
    vocabulary: Vocabulary
    share: float = 1 / 6
    """The share of the order that is predicted, at its end: partial prediction, 1/K."""
    spans: bool = False
    """Predict spans of 1 to 5 tokens, as the release does, and not single ones."""
    rule: Literal["paper", "release"] = "paper"
    """Which words attend to which. paper: a word attends to those that are not later in the order,
    so that the loss is the chain rule of its formula. release: words that are not predicted attend
    to each other and nothing else; special tokens are ordered among the predicted words, which
    attend to those that are earlier (data_utils.py, _local_perm)."""
    reuse: int | None = None
    """The first `reuse` positions of a row do not attend to the others, have their own order and
    share, and are all that is remembered (reuse_len of the release); None: no such part."""

    def __post_init__(self) -> None:
        check_type("vocabulary", self.vocabulary, Vocabulary, "tokenizer.vocabulary")
        check_share("share", self.share)
        check_choice("rule", self.rule, "paper", "release")
        if self.reuse is not None:
            check_whole("reuse", self.reuse, least=1)

    def order(self, batch: Batch, chance: Chance) -> hiding.Order:
        """What is predicted, and the order, which the masks follow."""
        if self.reuse is None:
            return self._order(batch, chance, batch.real)
        first_BT = hiding.own_words(batch.tokens) < self.reuse
        one, other = (self._order(batch, chance, batch.real & p) for p in (first_BT, ~first_BT))
        # All of the first part is earlier than what is earliest in the second.
        rank_BT = torch.where(first_BT, one.rank, other.rank + self.reuse + 1)
        return hiding.Order(rank_BT, one.predicted | other.predicted)

    def _order(self, batch: Batch, chance: Chance, part_BT: Tensor) -> hiding.Order:
        """The order of a part of each row."""
        candidates = hiding.ordinary(batch.tokens, part_BT, self.vocabulary)
        order = hiding.order(candidates, chance, self.share, spans=self.spans, words_BT=batch.words)
        if self.rule == "paper":
            return order
        # The numbers that chose the words would put these behind the special tokens.
        placed = order.predicted | (part_BT & ~candidates)
        return hiding.Order(hiding.ranks(placed, chance, purpose="place"), order.predicted)

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The last words of the order; the query stream has states at their positions only."""
        self._check(batch)
        order = self.order(batch, chance)
        predicted = order.predicted
        rows_N, positions_N = predicted.nonzero(as_tuple=True)
        # The n-th predicted word of its row: its column among the queries.
        columns_N = (predicted.cumsum(dim=1) - 1)[rows_N, positions_N]
        widest = int(columns_N.max()) + 1 if len(columns_N) else 1
        queries = torch.zeros(len(batch), widest, dtype=torch.long, device=rows_N.device)
        queries[rows_N, columns_N] = positions_N
        words = Predicted(rows_N, columns_N, batch.tokens[rows_N, positions_N])
        return Targets.of(batch, {"word": words}, order=order, queries=queries)

    def check_model(self, model: Any) -> None:
        """Refuse a backbone that has no query stream."""
        super().check_model(model)
        if not hasattr(model.backbone, "two_streams"):
            raise ValueError(
                f"{type(model.backbone).__name__} has no query stream, so it would see the words "
                "that it has to predict: use XLNet"
            )

    def forward(
        self, model: Any, targets: Targets, memory: Memory | None = None
    ) -> tuple[States, Memory | None]:
        """The query stream's states, one for each position that is predicted."""
        self.check_model(model)
        backbone, inputs = model.backbone, targets.inputs
        assert targets.order is not None
        past = recall(memory if self.carry else None, targets.fresh)
        mask, query_mask = self.masks(targets, past.known)
        content, query = backbone.two_streams(
            inputs.tokens,
            targets.queries,
            mask=mask,
            query_mask=query_mask,
            memory=past.layers,
            **segments_of(backbone, targets),
        )
        return query, self.keep(content, past, targets) if self.carry else None

    def masks(self, targets: Targets, known: Tensor) -> tuple[Tensor, Tensor]:
        """The masks of the content stream and of the query stream."""
        inputs, order = targets.inputs, targets.order
        assert order is not None
        allowed = real_keys(torch.cat([known.to(inputs.real.device), inputs.real], dim=1))
        if inputs.documents is not None:
            allowed = allowed & same_segment(inputs.documents)
        past = known.shape[1]
        return up_to(order.rank, past) & allowed, before(order.rank, past) & allowed

    def keep(self, states: States, past: Memory, targets: Targets) -> Memory | None:
        """What the next segment may attend to: all of the row, or its part that is reused."""
        if self.reuse is None or states.memory is None:
            return super().keep(states, past, targets)
        given = [layer[:, : self.reuse] for layer in states.layers[:-1]]
        old = past.layers or [layer[:, :0] for layer in given]
        pairs = zip(old, given, strict=True)
        # A memory that is full holds as many positions as the model keeps.
        length = states.memory[0].shape[1]
        memory = tuple(remember(torch.cat(pair, dim=1), length) for pair in pairs)
        part = replace(targets, inputs=first(targets.inputs, self.reuse))
        return super().keep(States(states.layers, memory), past, part)
