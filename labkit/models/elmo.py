"""ELMo: two language models over characters, and a learned mix of all that they know of a word.

Peters et al. 2018, "Deep contextualized word representations", section 3; the characters' network
is Jozefowicz et al. 2016 and Kim et al. 2015 (highway layers: Srivastava et al. 2015). A word is
spelled in UTF-8 bytes, so there is no unseen word. Read `ELMo.forward` first.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from labkit.blocks import Backbone, States
from labkit.checks import check_config, check_several, check_whole
from labkit.recurrence import BothWays, LayerState, blank, lengths_of

# A reader of the course can do nothing about which kernel serves a projected state.
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")

# The alphabet of the release: the 256 bytes, two marks of sentences, two of words, and a blank.
WORD_BEGINS, WORD_ENDS, BLANK, ALPHABET = 258, 259, 260, 261


@dataclass(frozen=True)
class ELMoConfig:
    """The sizes of an ELMo; the defaults are the release's, which also clips: `clip=3.0`."""

    vocabulary: int = 0
    """How many words the model can spell by their numbers; 0: it is given characters only."""
    longest: int = 50
    """The most letters of a word that are read, including its two marks."""
    letter_width: int = 16
    kernels: tuple[tuple[int, int], ...] = (
        (1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024),
    )  # fmt: skip
    """(letters seen at once, features found) of each kernel over the characters. Without kernels a
    word's vector is looked up by its number, as before ELMo, and an unseen word has none."""
    highways: int = 2
    width: int = 512
    """Width of each direction; the states are twice as wide."""
    inner: int = 4096
    """Cells of each LSTM."""
    layers: int = 2
    dropout: float = 0.1
    clip: float | None = None
    """Cells and projected states are clipped to -clip ... clip; 3.0 in the release. None: no
    clipping, so that torch's kernel is used, which is many times faster."""
    both_remember: bool = False
    """Whether the direction from the right goes on from its last state as well, as in the training
    of the release. By default it starts anew: what it read last stands before the text, not after
    it."""

    def __post_init__(self) -> None:
        check_config(self)
        if self.longest < max(widest_kernel(self), 3):
            raise ValueError(
                f"words of {self.longest} letters, a kernel over {widest_kernel(self)}: let "
                "longest be at least that, and 3, for a letter and the two marks of a word"
            )
        if self.inner <= self.width:
            raise ValueError(
                f"{self.inner} cells are projected down to a width of {self.width}: "
                "choose more cells than that"
            )


def widest_kernel(config: ELMoConfig) -> int:
    """How many letters a word must have, blanks among them."""
    return max((letters for letters, _ in config.kernels), default=1)


def spell(words: Iterable[str], longest: int) -> Tensor:
    """The bytes of each word between two marks, cut or filled up to `longest`."""
    check_whole("longest", longest, least=3)
    check_several("words", words)
    rows = []
    for word in words:
        letters = [WORD_BEGINS, *word.encode()[: longest - 2], WORD_ENDS]
        rows.append(letters + [BLANK] * (longest - len(letters)))
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, longest)


class Highway(nn.Module):
    """g * relu(W x + b) + (1 - g) * x, with g = sigmoid(W_g x + b_g)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        for part in (self.change, self.gate):
            nn.init.normal_(part.weight, std=width**-0.5)
        nn.init.zeros_(self.change.bias)
        # The gates are nearly closed at first.
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x_ND: Tensor) -> Tensor:
        """Some features transformed, the others unchanged."""
        gate_ND = torch.sigmoid(self.gate(x_ND))
        return gate_ND * self.change(x_ND).relu() + (1 - gate_ND) * x_ND


class CharacterCNN(nn.Module):
    """A word's vector from its letters: the best match of each kernel anywhere in the word."""

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.letter = nn.Embedding(ALPHABET, config.letter_width)
        kernels = [nn.Conv1d(config.letter_width, found, n) for n, found in config.kernels]
        self.kernels = nn.ModuleList(kernels)
        features = sum(found for _, found in config.kernels)
        self.highways = nn.Sequential(*(Highway(features) for _ in range(config.highways)))
        self.out = nn.Linear(features, config.width)
        nn.init.uniform_(self.letter.weight, -1.0, 1.0)
        for kernel in kernels:
            nn.init.uniform_(kernel.weight, -0.05, 0.05)
            nn.init.zeros_(kernel.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.out.weight, std=features**-0.5)
        nn.init.zeros_(self.out.bias)

    def forward(self, characters: Tensor) -> Tensor:
        """The vectors of words that are given by their letters [N, letters]: [N, D]."""
        x = self.letter(characters).transpose(1, 2)
        found = [kernel(x).amax(dim=-1) for kernel in self.kernels]
        return self.out(self.highways(torch.cat(found, dim=-1).relu()))


class OneBiasLSTM(nn.LSTM):
    """An LSTM with the one bias that its formula has; torch adds a second, which stays zero.

    `clip` cuts each cell, and each projected state, as `cell_clip` and `proj_clip` of the release
    do (bilm/model.py, _build_lstms; tf.nn.rnn_cell.LSTMCell).
    """

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    weight_hr_l0: Tensor
    bias_ih_l0: Tensor

    def __init__(self, given: int, inner: int, width: int, *, clip: float | None = None) -> None:
        super().__init__(given, inner, batch_first=True, proj_size=width)
        self.clip = clip
        del self.bias_hh_l0
        # The release draws all gates as one matrix, and its forget gates start nearly open.
        limit = (6 / (given + width + 4 * inner)) ** 0.5
        for weight in (self.weight_ih_l0, self.weight_hh_l0):
            nn.init.uniform_(weight, -limit, limit)
        nn.init.xavier_uniform_(self.weight_hr_l0)
        nn.init.zeros_(self.bias_ih_l0)
        nn.init.ones_(self.bias_ih_l0[inner : 2 * inner])
        self.register_buffer("bias_hh_l0", torch.zeros(4 * inner), persistent=False)

    def forward(  # type: ignore[override]
        self, x: Tensor | PackedSequence, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """What nn.LSTM gives, with the clipping that torch has no kernel for."""
        if not self.clip:  # torch.compile of PyTorch 2.15 takes `self.clip is None` for False
            return super().forward(x, state)
        if isinstance(x, PackedSequence):
            return self._clipped(x, state, self.clip)
        lengths_B = torch.full((len(x),), x.shape[1])
        y, new = self._clipped(
            pack_padded_sequence(x, lengths_B, batch_first=True), state, self.clip
        )
        return pad_packed_sequence(y, batch_first=True)[0], new

    def _clipped(
        self, x: PackedSequence, state: tuple[Tensor, Tensor], limit: float
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]:
        """One word after the other; a row whose text has ended keeps its state."""
        h_BD, c_BF = (part[0] for part in state)
        states = []
        from_words = F.linear(x.data, self.weight_ih_l0, self.bias_ih_l0)
        for gates in from_words.split(x.batch_sizes.tolist()):
            rows = len(gates)
            gates = gates + F.linear(h_BD[:rows], self.weight_hh_l0)
            i, f, new, o = gates.chunk(4, dim=-1)
            cell = f.sigmoid() * c_BF[:rows] + i.sigmoid() * new.tanh()
            cell = cell.clamp(-limit, limit)
            h_new = F.linear(o.sigmoid() * cell.tanh(), self.weight_hr_l0).clamp(-limit, limit)
            h_BD, c_BF = torch.cat([h_new, h_BD[rows:]]), torch.cat([cell, c_BF[rows:]])
            states.append(h_new)
        return PackedSequence(torch.cat(states), x.batch_sizes), (h_BD[None], c_BF[None])


class ELMo(Backbone):
    """h_0 = CNN(letters);  h_i = LSTM_i(h_(i-1)) [+ h_(i-1) from the second on], both ways.

    The two directions share the words' vectors and nothing else. All of `States.layers`, the
    words' vectors first, are [from the left; from the right]: `labkit.blocks.halves` splits
    them. The states from the left at a word know it and what came before, those from the right it
    and what follows, so they predict the next word and the one before.
    """

    config: ELMoConfig
    token: nn.Embedding | CharacterCNN  # type: ignore[assignment]
    two_ways, attends, remembers = True, False, True
    spelling: Tensor

    def __init__(self, config: ELMoConfig, words: Iterable[str] | None = None) -> None:
        super().__init__(config, width=2 * config.width)
        c = config
        self.token = CharacterCNN(c) if c.kernels else nn.Embedding(c.vocabulary, c.width)
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            BothWays(*(OneBiasLSTM(c.width, c.inner, c.width, clip=c.clip) for _ in range(2)))
            for _ in range(c.layers)
        )
        table = spell([""] * c.vocabulary if words is None else words, c.longest)
        if len(table) != c.vocabulary:
            raise ValueError(
                f"{len(table)} words to spell, but the vocabulary has {c.vocabulary}: give each "
                "word's text, in the order of their numbers"
            )
        # Saved with the weights, so that a model that is read from a folder can spell.
        self.register_buffer("spelling", table)
        self._spelled = False

    def forward(
        self,
        tokens_BT: Tensor | None,
        *,
        characters: Tensor | None = None,
        mask: Tensor | None = None,
        memory: tuple[LayerState, ...] | None = None,
    ) -> States:
        """The states of all layers, of words given by number or, if given, by `characters`.

        `characters` is [B, T, letters], as `spell` makes them, and may spell unseen words.
        Memory is that of the LSTMs from the left, and of those from the right if both remember.
        """
        c = self.config
        left = right = self.words(tokens_BT, characters)
        lengths_B = lengths_of(mask, left[:, :, 0])
        layers, kept = [torch.cat([left, right], dim=-1)], []
        for i, block in enumerate(self.blocks):
            start = blank(left, c.width, c.inner)
            before = memory[i] if memory else start + start
            given = self.dropout(left), self.dropout(right)
            left, right, *after = block(
                *given, before[:2], before[2:] if c.both_remember else start, lengths_B
            )
            if i > 0:
                left, right = left + given[0], right + given[1]
            layers.append(torch.cat([left, right], dim=-1))
            kept.append(after[0] + after[1] if c.both_remember else after[0])
        return States(tuple(layers), tuple(kept))

    def _check_spelled(self) -> None:
        """Refuse to read words whose letters were never given: all would look alike."""
        if self._spelled or torch.compiler.is_compiling():
            return
        if self.config.vocabulary > 1 and bool((self.spelling == self.spelling[0]).all()):
            raise ValueError(
                "this model does not know how its words are spelled: build it with "
                "ELMo(config, words)"
            )
        self._spelled = True

    def words(self, tokens_BT: Tensor | None, characters: Tensor | None = None) -> Tensor:
        """The vectors of the words without their context [B, T, D]."""
        if not self.config.kernels:
            if tokens_BT is None or characters is not None:
                raise ValueError("this model has no kernels over letters: give numbers of words")
            return self.token(tokens_BT)
        if characters is not None:
            rows, _, letters = characters.shape
            if letters > self.config.longest or letters < widest_kernel(self.config):
                raise ValueError(
                    f"words of {letters} letters: this model reads {widest_kernel(self.config)} to "
                    f"{self.config.longest}, so spell with spell(words, {self.config.longest})"
                )
            return self.token(characters.flatten(0, 1)).unflatten(0, (rows, -1))
        if tokens_BT is None or not self.config.vocabulary:
            raise ValueError(
                "there is nothing to spell: give characters [B, T, letters], or numbers of words "
                "to a model that was built with a vocabulary and its words"
            )
        self._check_spelled()
        # A word that stands in many positions is spelled once.
        numbers, index_BT = tokens_BT.unique(return_inverse=True)
        return self.token(self.spelling[numbers])[index_BT]


class WeightedSum(nn.Module):
    """ELMo's mix: g * sum_i s_i h_i, with s = softmax(w), over the layers of any model.

    `normalise` makes the layers alike in size first, which the paper found to help at times: each
    position by itself ("position", the same for a text alone and in a batch, the default), or all
    real positions of a batch with one mean and variance ("batch", bilm/elmo.py, weight_layers).
    """

    def __init__(
        self, layers: int, *, normalise: bool | Literal["position", "batch"] = False
    ) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))
        if normalise not in (True, False, "position", "batch"):
            raise ValueError(
                f"normalise is {normalise!r}: give False, 'position' (or True) or 'batch'"
            )
        self.normalise = normalise

    @property
    def shares(self) -> Tensor:
        """How much of each layer is in the mix: at first, the same of all."""
        return self.weights.softmax(dim=0)

    def forward(self, layers: Sequence[Tensor], real_BT: Tensor | None = None) -> Tensor:
        """One state per word [B, T, D]; `real_BT` is False at padding."""
        if len(layers) != len(self.weights):
            raise ValueError(
                f"{len(layers)} layers to mix, {len(self.weights)} weights: build WeightedSum with "
                f"layers={len(layers)} (the vectors that go into the first layer count as one)"
            )
        if self.normalise == "batch":
            layers = [normalised_as_one(layer, real_BT) for layer in layers]
        elif self.normalise:
            layers = [F.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        shares = zip(self.shares, layers, strict=True)
        return self.scale * torch.stack([share * layer for share, layer in shares]).sum(dim=0)


def normalised_as_one(layer_BTD: Tensor, real_BT: Tensor | None = None) -> Tensor:
    """(x - mean) / deviation, over all real positions and features of a batch."""
    x_ND = layer_BTD.flatten(0, 1) if real_BT is None else layer_BTD[real_BT]
    if not x_ND.numel():
        return layer_BTD
    return (layer_BTD - x_ND.mean()) * (x_ND.var(correction=0) + 1e-12).rsqrt()
