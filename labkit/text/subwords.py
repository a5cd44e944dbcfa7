"""How WordPiece finds subwords, step by step, in plain Python: for watching, not for speed."""

from collections.abc import Collection


def split_steps(word: str, vocabulary: Collection[str], prefix: str) -> list[list[str]] | None:
    """Cut off the longest known piece again and again; None if the word cannot be spelled."""
    steps: list[list[str]] = []
    pieces: list[str] = []
    rest = word
    while rest:
        start = prefix if pieces else ""
        steps.append([*pieces, start + rest])
        ends = range(len(rest), 0, -1)
        end = next((end for end in ends if start + rest[:end] in vocabulary), None)
        if end is None:
            return None
        pieces.append(start + rest[:end])
        rest = rest[end:]
    return steps
