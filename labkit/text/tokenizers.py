"""From text to tokens and back: characters, words, byte-level BPE and WordPiece.

The work is done by the `tokenizers` library, and files are in its own JSON. This module trains the
four kinds and reads a release's files; `labkit.text.subwords` shows how WordPiece works.

BPE: Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units",
2016, on bytes as in GPT-2 (Radford et al., 2019, section 2.2). WordPiece: Wu et al., "Google's
neural machine translation system", 2016, as BERT uses it (Devlin et al., 2019, section 3).
Read `Tokenizer` first.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from labkit.checks import HALF_A_PAIR, LARGEST_SIZE, check_several, has_half_a_pair, shown
from labkit.keeping.files import digest, write_text
from labkit.text.tokenizer_files import (
    ROLES,
    bert,
    byte_level,
    library_call,
    load_library,
    with_special,
)
from labkit.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

LONGEST_WORD = 1000  # characters of a word that is learned from
LONG_SPACE = re.compile(rf"\s{{{LONGEST_WORD}}}")

# A word with its apostrophes and hyphens, or one sign.
WORD = r"\w+(?:['’-]\w+)*|[^\w\s]"
# The parts that characters are grouped in: a word with the space before it, or white space.
SPACED_WORD = r" ?\S+|\s"


class Tokenizer:
    """A tokenizer of the library with a `Vocabulary`; text alone never becomes a special token."""

    def __init__(self, library: Library) -> None:
        self.library = library
        # A document about "[MASK]" must not hide a word of its own.
        library.encode_special_tokens = True
        library.no_padding()
        library.no_truncation()
        self.vocabulary = _vocabulary(library)

    # ---- training

    @classmethod
    def characters(cls, texts: Iterable[str], special: Sequence[str] = SPECIAL) -> "Tokenizer":
        """One token for each character that the texts hold; others become [UNK]."""
        # BPE that may not merge is a list of characters which still knows where words begin.
        library = Library(models.BPE(unk_token=_unknown(special)))
        library.pre_tokenizer = pre_tokenizers.Split(Regex(SPACED_WORD), "isolated")
        library.decoder = decoders.Fuse()
        trainer = trainers.BpeTrainer(vocab_size=0, special_tokens=[*special], show_progress=False)
        return cls._trained(library, texts, trainer)

    @classmethod
    def words(
        cls,
        texts: Iterable[str],
        size: int = 30_000,
        lowercase: bool = False,
        special: Sequence[str] = SPECIAL,
    ) -> "Tokenizer":
        """One token for each of the most frequent words and signs; others become [UNK]."""
        library = Library(models.WordLevel(unk_token=_unknown(special)))
        library.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
        if lowercase:
            library.normalizer = normalizers.Lowercase()
        trainer = trainers.WordLevelTrainer(
            vocab_size=_enough(size, 1 + len(special)),
            special_tokens=[*special],
            show_progress=False,
        )
        return cls._trained(library, texts, trainer)

    @classmethod
    def bpe(cls, texts: Iterable[str], size: int, special: Sequence[str] = SPECIAL) -> "Tokenizer":
        """Byte-level BPE: every text has tokens, and they give back exactly the text."""
        library = byte_level(Library(models.BPE()))
        trainer = trainers.BpeTrainer(
            vocab_size=_enough(size, 256 + len(special)),
            special_tokens=[*special],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        return cls._trained(library, texts, trainer)

    @classmethod
    def word_pieces(
        cls,
        texts: Iterable[str],
        size: int,
        lowercase: bool = True,
        special: Sequence[str] = SPECIAL,
    ) -> "Tokenizer":
        """WordPiece as in BERT: the longest known beginning, then the longest `##continuation`."""
        # The library numbers the ##characters as it happens to meet them, and the numbers decide
        # between pairs as frequent: so they are found first, and given to it in order.
        library = bert(Library(models.WordPiece(unk_token=_unknown(special))), lowercase)
        texts = [*texts] if iter(texts) is texts else texts
        known = [*special]
        for vocab_size in (0, _enough(size, 1 + len(special))):
            trainer = trainers.WordPieceTrainer(
                vocab_size=vocab_size, special_tokens=known, show_progress=False
            )
            library.train_from_iterator(_learnable(texts), trainer)
            vocabulary = library.get_vocab()
            known = [*special, *sorted(vocabulary.keys() - {*special})]
        # The characters are no special tokens: a fresh library knows them as ordinary ones.
        model = models.WordPiece(vocabulary, unk_token=_unknown(special))
        return cls._checked(with_special(bert(Library(model), lowercase), special))

    @classmethod
    def _trained(
        cls, library: Library, texts: Iterable[str], trainer: trainers.Trainer
    ) -> "Tokenizer":
        library.train_from_iterator(_learnable(texts), trainer)
        return cls._checked(library)

    @classmethod
    def _checked(cls, library: Library) -> "Tokenizer":
        tokenizer = cls(library)
        if tokenizer.vocabulary.size <= len(tokenizer.vocabulary.special):
            raise ValueError("the texts to train on hold no words: give at least one")
        return tokenizer

    # ---- files

    @classmethod
    def load(cls, path: str | Path, lowercase: bool | None = None) -> "Tokenizer":
        """Read a tokenizer.json, a vocab.txt, a vocab.json beside merges.txt, or their folder.

        A vocab.json is read as GPT-1's if its words end in "</w>", or else as byte-level BPE.
        `lowercase` is for a vocab.txt: without it, the tokenizer_config.json beside it decides,
        or else whether the vocabulary has capital letters.
        """
        return cls(load_library(Path(path), lowercase))

    def save(self, path: str | Path) -> None:
        """Write the library's JSON, without spaces, all or nothing."""
        write_text(Path(path), self.library.to_str())

    @property
    def fingerprint(self) -> str:
        """Differs when the tokens of some text may differ."""
        return digest(self.library.to_str().encode())

    # ---- use

    def __len__(self) -> int:
        return self.vocabulary.size

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of a text; with `special`, a "[MASK]" written in it becomes the mask."""
        library = self._library_of_special if special else self.library
        return list(_encoded(library.encode, text).ids)

    @cached_property
    def _library_of_special(self) -> Library:
        """A copy that reads special tokens: other threads may be using the library itself."""
        library = Library.from_str(self.library.to_str())
        library.encode_special_tokens = False
        return library

    def encode_all(self, texts: Sequence[str]) -> list[Encoding]:
        """What the library finds in each text: tokens, their words and their characters."""
        return _encoded(self.library.encode_batch, texts)

    def decode(self, tokens: Iterable[int], special: bool = False) -> str:
        """The text of tokens; with `special`, the special tokens are written out."""
        return self.library.decode(self._known(tokens), skip_special_tokens=not special)

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """How the vocabulary spells each token."""
        return [str(self.library.id_to_token(token)) for token in self._known(tokens)]

    def _known(self, tokens: Iterable[int]) -> list[int]:
        """The tokens as integers; one that the vocabulary does not have is an error."""
        numbers = []
        for token in tokens:
            # Numbers of numpy and torch are whole numbers too.
            number = operator.index(token) if hasattr(token, "__index__") else -1
            if not 0 <= number < len(self):
                raise ValueError(
                    f"{shown(token)} is not a token: the vocabulary has 0 to {len(self) - 1}"
                )
            numbers.append(number)
        return numbers

    def __getitem__(self, piece: str) -> int:
        """The number of one token of the vocabulary, given as the vocabulary spells it."""
        number = self.library.token_to_id(piece)
        if number is None:
            raise KeyError(f"{piece!r} is not in the vocabulary of {len(self)} tokens")
        return int(number)


def _learnable(texts: Iterable[str]) -> Iterator[str]:
    """The texts; one with a run of very many letters or spaces in pieces."""
    check_several("texts", texts)
    return chain.from_iterable(map(_in_pieces, texts))


def _in_pieces(text: str) -> list[str]:
    """The library's time to learn grows with the square of the longest word."""
    if not isinstance(text, str):
        raise TypeError(f"a text is a {type(text).__name__}: give strings, such as documents.texts")
    if max(map(len, text.split()), default=0) <= LONGEST_WORD and not LONG_SPACE.search(text):
        return [text]
    return [text[n : n + LONGEST_WORD] for n in range(0, len(text), LONGEST_WORD)]


def _encoded(encode: Callable[..., Any], text: str | Sequence[str]) -> Any:
    try:
        return library_call("the text cannot be encoded", encode, text, add_special_tokens=False)
    except ValueError:
        if has_half_a_pair("".join(text)):
            raise ValueError(f"the text {HALF_A_PAIR}") from None
        raise


def _vocabulary(library: Library) -> Vocabulary:
    roles = {
        role: next((n for n in map(library.token_to_id, names) if n is not None), None)
        for role, names in ROLES.items()
    }
    added = {n for n, token in library.get_added_tokens_decoder().items() if token.special}
    special = sorted(added | {n for n in roles.values() if n is not None})
    size = 1 + max(library.get_vocab().values(), default=-1)
    return Vocabulary(size, special=tuple(special), **roles)


def _unknown(special: Sequence[str]) -> str:
    unknown = [name for name in special if name in ROLES["unk"]]
    if not unknown:
        raise ValueError(f"special={[*special]} has no [UNK]: this tokenizer needs it")
    return unknown[0]


def _enough(size: int, least: int) -> int:
    if type(size) is not int:
        raise ValueError(f"size is {shown(size)}: give a whole number of tokens")
    if size < least:
        raise ValueError(f"size is {size}: give at least {least}, the tokens that it must hold")
    if size > LARGEST_SIZE:
        raise ValueError(f"size is {size}: give at most {LARGEST_SIZE:,}")
    return size
