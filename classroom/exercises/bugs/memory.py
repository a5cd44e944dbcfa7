"""Memory: a text that is read in pieces has to give what it gives when it is read at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from classroom.exercises.duels import Bug, Honest, Seen, Symptom, Topic

Read = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
WORDS, WIDTH, LONGEST = 9, 6, 256
EXACT = torch.double
"""So exact that `torch.allclose` as it comes finds no difference between sound ways to read."""
_RNG = torch.Generator().manual_seed(0)
TABLE = torch.randn(WORDS, WIDTH, generator=_RNG, dtype=EXACT).requires_grad_()
PLACES = torch.randn(LONGEST, WIDTH, generator=_RNG, dtype=EXACT)
MIX = torch.randn(WIDTH, WORDS, generator=_RNG, dtype=EXACT)


def _embedded(tokens: Tensor, start: int) -> Tensor:
    return TABLE[tokens] + PLACES[start : start + tokens.shape[1]]


def _attend(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    scores = (queries @ keys.mT).masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ keys + queries) @ MIX


def _lower_right(queries: int, keys: int) -> Tensor:
    """True where a query may look: the last query sees the last key."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def honest(tokens_BT: Tensor, memory_BMD: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits [B, T, V] of a causal model, and the memory with which the next piece is read."""
    old = torch.zeros(len(tokens_BT), 0, WIDTH, dtype=EXACT) if memory_BMD is None else memory_BMD
    queries = _embedded(tokens_BT, old.shape[1])
    keys = torch.cat([old, queries], dim=1)
    mask = _lower_right(queries.shape[1], keys.shape[1])
    return _attend(queries, keys, mask), keys.detach()


def _keeps_words(tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    """The memory holds the words themselves, and all is computed again."""
    old = torch.zeros(len(tokens), 0, dtype=torch.long) if memory is None else memory
    whole = torch.cat([old, tokens], dim=1)
    return honest(whole, None)[0][:, old.shape[1] :], whole


def _running_sum(tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    """A recurrent model: its memory is one state, however long the text."""
    state = torch.zeros(len(tokens), 1, WIDTH, dtype=EXACT) if memory is None else memory
    states = state + TABLE[tokens].cumsum(dim=1)
    return states @ MIX, states[:, -1:].detach()


def _in_a_buffer(tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    """A memory of fixed size whose first entry counts how much of it is filled."""
    buffer = (
        torch.zeros(len(tokens), LONGEST, WIDTH, dtype=EXACT) if memory is None else memory.clone()
    )
    filled = int(buffer[0, 0, 0])
    logits, keys = honest(tokens, buffer[:, 1 : 1 + filled])
    buffer[:, 0, 0] = keys.shape[1]
    buffer[:, 1 : 1 + keys.shape[1]] = keys
    return logits, buffer


def _spoiled(
    *, start: bool = True, align: bool = True, first: bool = True, twice: bool = False,
    last: bool = True, rows: bool = True, detach: bool = True,
) -> Read:  # fmt: skip
    """A reader with one thing that is not as it should be."""

    def read(tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        old = torch.zeros(len(tokens), 0, WIDTH, dtype=EXACT) if memory is None else memory
        queries = _embedded(tokens, old.shape[1] if start else 0)
        seen = old if rows else old[:1].expand_as(old)
        keys = torch.cat([seen, queries], dim=1)
        mask = _lower_right(queries.shape[1], keys.shape[1])
        if not align:
            mask = torch.ones_like(mask).tril()
        if not first and old.shape[1]:
            mask[:, 0] = False
        new = torch.cat([old, queries, *([queries] if twice else [])], dim=1)
        new = new if last else new[:, :-1]
        return _attend(queries, keys, mask), new.detach() if detach else new

    return read


def _in_place(tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    result = _in_a_buffer(tokens, memory)
    if memory is not None:
        memory.copy_(result[1])
        return result[0], memory
    return result


class _Global:
    """A reader that keeps its memory in itself, and never forgets a text."""

    def __init__(self) -> None:
        self.kept: Tensor | None = None

    def __call__(self, tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        old = self.kept if memory is None else memory
        usable = old is not None and len(old) == len(tokens) and old.shape[1] < LONGEST // 2
        logits, self.kept = honest(tokens, old if usable else None)
        return logits, self.kept


def _last_piece_only(tokens: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    logits, keys = honest(tokens, memory)
    return logits, keys[:, -tokens.shape[1] :]


TOPIC = Topic(
    "read(tokens, memory) returns the logits [B, T, V] of a causal model and the memory for the "
    "next piece; memory is None at the beginning of a text, and no gradient flows into it; reading "
    "in pieces gives what reading at once gives; return True if read breaks any of this",
    (
        Honest("a sound model that keeps keys", honest),
        Honest("a sound model that keeps the words", _keeps_words),
        Honest("a sound recurrent model", _running_sum),
        Honest("a sound model with a buffer of fixed size", _in_a_buffer),
    ),
    (
        Bug("positions begin at 0 in each piece", _spoiled(start=False),
            "mosaicml/examples, pull request 244: the cache shifts the positions",
            "Read a text in two pieces and at once: are the logits the same?"),
        Bug("the causal mask begins at the first key", _spoiled(align=False),
            "PyTorch, issues 108108 and 144858; onnx, pull request 8068",
            "Read a text in two pieces and at once: are the logits the same?"),
        Bug("the first state of the memory is hidden", _spoiled(first=False),
            "transformers, pull request 14832: Transformer-XL",
            "Read a text in two pieces and at once: are the logits the same?"),
        Bug("only the last piece is kept", _last_piece_only,
            "transformer-xl, issue 118; transformers, issue 2970: the lengths were swapped",
            "Two pieces may not be enough: read a text in three"),
        Bug("each piece is stored twice", _spoiled(twice=True),
            "transformers, pull request 4826: the text was given again with its memory",
            "Read a text in two pieces and at once: are the logits the same?"),
        Bug("the last state is lost", _spoiled(last=False),
            "Transformers-RL, issue 7: the memory was cut at the wrong index",
            "Read a text in two pieces and at once: are the logits the same?"),
        Bug("all rows get the first row's memory", _spoiled(rows=False),
            "as easy to make: a memory that was set up for a batch of one",
            "Give rows with different texts"),
        Bug("the caller's memory is changed", _in_place,
            "Transformer-XL's first release changed the memory that it was given",
            "Go on from one memory twice, with different words"),
        Bug("a new text begins with the old memory", _Global(),
            "litgpt, pull request 1596; mlx-examples, issue 1000",
            "Read one text, then begin another: does the first one matter?"),
        Bug("gradients flow into the memory", _spoiled(detach=False),
            "pytorch-lightning, pull request 8145: hidden states were not detached",
            "Look at what is returned as memory: does it require a gradient?"),
    ),
    lambda: (torch.randint(WORDS, (3, 9)),),
)  # fmt: skip


# ---- what one sees of a bug ---------------------------------------------------------------------


@torch.no_grad()
def differences() -> list[float]:
    """By how much the logits differ at each position when only the last piece is kept."""
    tokens = torch.randint(WORDS, (50, 12), generator=torch.Generator().manual_seed(0))
    whole, memory, parts = honest(tokens, None)[0], None, []
    for part in tokens.split(4, dim=1):
        logits, memory = _last_piece_only(part, memory)
        parts.append(logits)
    return (torch.cat(parts, dim=1) - whole).abs().mean(dim=(0, 2)).tolist()


def _measure() -> Seen:
    by = differences()
    return Seen(
        "A text of twelve words is read in pieces of four. The logits of the first eight words are "
        f"those of reading at once; those of the last four differ by {by[9]:.1f} on average.",
        by, "position", 0.0, "read at once",
    )  # fmt: skip


SYMPTOM = Symptom(
    _measure,
    "the memory holds the last piece only",
    {
        "positions begin at 0 in each piece": "with that bug the second piece would differ, too",
        "the causal mask begins at the first key": "with that bug the second piece would differ, "
        "too",
        "a new text begins with the old memory": "with that bug the first piece would differ, too",
        "gradients flow into the memory": "with that bug the logits would be the same everywhere",
    },
)
