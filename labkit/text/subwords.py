"""How subwords are learned and found, step by step, in plain Python: for watching, not for speed.

BPE learns which pairs to merge (Sennrich, Haddow and Birch, 2016, algorithm 1) and merges them in
that order; WordPiece cuts off the longest piece it knows. Read `training_steps` first.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Merge(NamedTuple):
    """One step of BPE's training: the most frequent pair, how often, and the words after it."""

    pair: tuple[str, str]
    times: int
    words: dict[tuple[str, ...], int]


def training_steps(word_counts: Mapping[str, int], merges: int) -> list[Merge]:
    """Learn BPE from counted words, merge by merge."""
    words = {tuple(word): count for word, count in word_counts.items()}
    # Of pairs that are as frequent, the library takes the one whose parts it has known longest.
    age = {piece: n for n, piece in enumerate(sorted({c for word in words for c in word}))}
    steps: list[Merge] = []
    for _ in range(merges):
        counts: dict[tuple[str, str], int] = {}
        for word, count in words.items():
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], age[pair[0]], age[pair[1]]))
        age.setdefault("".join(best), len(age))
        words = {tuple(_join(word, best)): count for word, count in words.items()}
        steps.append(Merge(best, counts[best], words))
    return steps


def merge_steps(word: Sequence[str], merges: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """Apply BPE's merges to a word, each wherever they apply, in the order they were learned."""
    rank = {pair: number for number, pair in enumerate(merges)}
    steps = [[*word]]
    while True:
        known = [pair for pair in pairwise(steps[-1]) if pair in rank]
        if not known:
            return steps
        steps.append(_join(steps[-1], min(known, key=rank.__getitem__)))


def split_steps(word: str, vocabulary: Collection[str], prefix: str) -> list[list[str]] | None:
    """Cut off the longest known piece again and again; None if the word cannot be spelled."""
    steps = [[word]]
    pieces: list[str] = []
    rest = word
    while rest:
        start = prefix if pieces else ""
        ends = range(len(rest), 0, -1)
        end = next((end for end in ends if start + rest[:end] in vocabulary), None)
        if end is None:
            return None
        pieces.append(start + rest[:end])
        rest = rest[end:]
        steps.append(pieces + ([prefix + rest] if rest else []))
    # The last piece was cut off with nothing left: what stands there did not change.
    return steps[:-1]


def _join(pieces: Sequence[str], pair: tuple[str, ...]) -> list[str]:
    joined: list[str] = []
    for piece in pieces:
        if joined and (joined[-1], piece) == pair:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined
