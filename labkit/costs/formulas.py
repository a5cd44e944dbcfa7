"""What a Transformer of a given shape costs, by closed formulas: operations, and its cache.

`rule_flop` is 6 N D (Kaplan et al. 2020, section 2.1), `formula_flop_per_token` adds attention.
What a built model has and does is counted in `counting.py`.  Every name ends in its unit.

Operations of attention: a plain product computes the scores of all T keys for each query, masked or
not, and that is what the formulas count, as Kaplan et al. do.  With `masked=True` they count only
the keys that the mask leaves: half of them in a causal model, and fewer in a band.
"""

from dataclasses import dataclass

from labkit.checks import check_above_zero, check_choice


def short(count: int | None) -> str:
    """A count as the papers print it: 117M, 1.3B."""
    if count is None:
        return "-"
    for size, unit in ((10**6, "M"), (10**9, "B"), (10**12, "T")):
        said = f"{count / size:.4g}{unit}"
        if float(said[:-1]) < 1000:  # as it is printed: 999,999,999 is 1B, not 1000M
            break
    return said


# ---- operations ------------------------------------------------------------------------------


def rule_flop(parameters: float, tokens: float) -> float:
    """6 N D: a multiply and an add per parameter and token, and twice that backward."""
    check_above_zero(parameters=parameters, tokens=tokens)
    return 6 * parameters * tokens


def keys_per_query(context: int, *, causal: bool = True, band: int | None = None) -> float:
    """How many keys a mask leaves to a query, on average: (T + 1) / 2 of T in a causal model.

    With a band, a query attends to the keys less than `band` positions away: in a causal model,
    itself and the band - 1 before it.
    """
    check_above_zero(context=context, band=1 if band is None else band)
    band = context if band is None else min(band, context)
    # The first positions have fewer keys before them, the last ones fewer behind them.
    left_out = (band - 1) * band / 2 / context
    return band - left_out if causal else 2 * band - 1 - 2 * left_out


@dataclass(frozen=True)
class Shape:
    """The sizes that the closed formulas of a Transformer need."""

    layers: int
    width: int
    vocabulary: int
    context: int
    inner: int | None = None
    heads: int = 1
    experts: int = 1
    experts_used: int = 1
    causal: bool = True
    """Whether a position attends only to itself and to those before it."""
    band: int | None = None
    """The band of every other layer (GPT-3); None: these attend to all keys, too."""
    embedding: int | None = None
    """Width of the embeddings, if narrower than the model (ALBERT)."""

    def __post_init__(self) -> None:
        check_above_zero(**{k: v for k, v in vars(self).items() if v is not None and k != "causal"})
        if self.experts_used > self.experts:
            raise ValueError(f"{self.experts_used} experts are used, but only {self.experts} exist")
        if self.width % self.heads:
            raise ValueError(
                f"a width of {self.width} does not divide into {self.heads} heads: "
                "give a width that is a multiple of heads"
            )

    @property
    def feed_forward(self) -> int:
        """Width of the feed-forward."""
        return 4 * self.width if self.inner is None else self.inner

    def matrices(self, experts: int) -> int:
        """Entries of the blocks' matrices: 4 D^2 of attention, 2 D F of each expert, the router."""
        inside = 4 * self.width**2 + 2 * experts * self.width * self.feed_forward
        router = self.experts * self.width if self.experts > 1 else 0
        return self.layers * (inside + router)

    @property
    def outside(self) -> int:
        """Entries of the matrices outside of the blocks: D V of the head.

        With narrow embeddings, E V, and D E twice: up from the embeddings, and down to the head.
        """
        if self.embedding is None:
            return self.width * self.vocabulary
        return self.embedding * (self.vocabulary + 2 * self.width)

    @property
    def idle(self) -> int:
        """Parameters of the experts that a token does not visit."""
        each = 2 * self.width * self.feed_forward + self.feed_forward + self.width
        return self.layers * (self.experts - self.experts_used) * each

    @property
    def keys(self) -> float:
        """How many keys the mask leaves to a query: the mean over positions and layers."""
        full = keys_per_query(self.context, causal=self.causal)
        if self.band is None:
            return full
        banded = keys_per_query(self.context, causal=self.causal, band=self.band)
        return full + (banded - full) * (self.layers // 2) / self.layers

    @property
    def parameters(self) -> int:
        """Parameters of a GPT of this shape, with biases and norms."""
        small = 9 * self.width + self.feed_forward  # biases, and two norms, of one block
        narrow = self.width if self.embedding is None else self.embedding
        embeddings = (self.vocabulary + self.context) * narrow
        if self.embedding is not None:
            embeddings += (narrow + 1) * self.width  # from the embeddings up to the model
        extra = (self.experts - 1) * self.layers * (self.width + self.feed_forward)
        return (
            embeddings + self.matrices(self.experts) + self.layers * small + 2 * self.width + extra
        )


def formula_flop_per_token(shape: Shape, *, training: bool = True, masked: bool = False) -> float:
    """2 (matrices + D V) + 4 L T D forward: Kaplan et al. 2020, table 1, and the last layer."""
    matrices = shape.matrices(shape.experts_used) + shape.outside
    attention = attention_flop_per_token(shape, masked=masked)
    return (3 if training else 1) * (2 * matrices + attention)


def attention_flop_per_token(shape: Shape, *, masked: bool = False) -> float:
    """4 L T D forward: the scores of T keys and the sum of T values, in each layer."""
    return 4 * shape.layers * (shape.keys if masked else shape.context) * shape.width


def attention_share(shape: Shape, *, masked: bool = False) -> float:
    """Which share of all operations is attention over the context, left out by 6 N D."""
    everything = formula_flop_per_token(shape, training=False, masked=masked)
    return attention_flop_per_token(shape, masked=masked) / everything


# ---- memory ----------------------------------------------------------------------------------

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def cache_bytes(shape: Shape, *, batch: int = 1, precision: str = "bfloat16") -> float:
    """Keys and values of a whole context, kept while writing: 2 L T D numbers for each text."""
    check_above_zero(batch=batch)
    check_choice("precision", precision, *BYTES)
    return 2 * shape.layers * shape.context * shape.width * batch * BYTES[precision]
