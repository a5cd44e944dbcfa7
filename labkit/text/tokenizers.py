"""From text to tokens and back: characters, words, byte-level BPE and WordPiece.

The work is done by the `tokenizers` library, and files are in its own JSON. This module trains the
four kinds and reads a release's files; `labkit.text.subwords` shows how BPE and WordPiece work.

BPE: Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units",
2016, on bytes as in GPT-2 (Radford et al., 2019, section 2.2). WordPiece: Wu et al., "Google's
neural machine translation system", 2016, as BERT uses it (Devlin et al., 2019, section 3).
Read `Tokenizer` first.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from labkit.keeping.files import digest, write_text
from labkit.text.subwords import merge_steps, split_steps

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# What the special tokens are called in the releases, the first that a vocabulary has counts.
# GPT-2 has one token for all that begins or ends: it parts the documents, as [SEP] does.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}

# A word with its apostrophes and hyphens, or one sign.
WORD = r"\w+(?:['’-]\w+)*|[^\w\s]"
# The parts that characters are grouped in: a word with the space before it, or white space.
SPACED_WORD = r" ?\S+|\s"


class Vocabulary(NamedTuple):
    """What an objective must know of a tokenizer: its size and the numbers of its special tokens.

    A special token that the vocabulary does not have is None; `special` holds all that it has.
    """

    size: int
    pad: int | None = None
    unk: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    special: tuple[int, ...] = ()


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
            vocab_size=size, special_tokens=[*special], show_progress=False
        )
        return cls._trained(library, texts, trainer)

    @classmethod
    def bpe(cls, texts: Iterable[str], size: int, special: Sequence[str] = SPECIAL) -> "Tokenizer":
        """Byte-level BPE: every text has tokens, and they give back exactly the text."""
        library = _byte_level(Library(models.BPE()))
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
        library = _bert(Library(models.WordPiece(unk_token=_unknown(special))), lowercase)
        texts = [*texts] if iter(texts) is texts else texts
        known = [*special]
        for vocab_size in (0, _enough(size, 1 + len(special))):
            trainer = trainers.WordPieceTrainer(
                vocab_size=vocab_size, special_tokens=known, show_progress=False
            )
            library.train_from_iterator(texts, trainer)
            vocabulary = library.get_vocab()
            known = [*special, *sorted(vocabulary.keys() - {*special})]
        # The characters are no special tokens: a fresh library knows them as ordinary ones.
        model = models.WordPiece(vocabulary, unk_token=_unknown(special))
        return cls._checked(_with_special(_bert(Library(model), lowercase), special))

    @classmethod
    def _trained(
        cls, library: Library, texts: Iterable[str], trainer: trainers.Trainer
    ) -> "Tokenizer":
        library.train_from_iterator(texts, trainer)
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

        `lowercase` is for a vocab.txt: without it, the tokenizer_config.json beside it decides,
        or else whether the vocabulary has capital letters.
        """
        path = Path(path)
        if path.is_dir():
            names = ("tokenizer.json", "vocab.json", "vocab.txt")
            found = [path / name for name in names if (path / name).is_file()]
            if not found:
                raise FileNotFoundError(f"{path} holds none of {', '.join(names)}")
            path = found[0]
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: give a tokenizer's file or its folder")
        if path.suffix == ".txt":
            return cls(_read_word_pieces(path, lowercase))
        content = _read_json(path)
        if "model" not in content:
            return cls(_read_byte_level(path))
        return cls(Library.from_file(str(path)))

    def save(self, path: str | Path) -> None:
        """Write the library's JSON, all or nothing."""
        write_text(Path(path), self.library.to_str(pretty=True))

    @property
    def fingerprint(self) -> str:
        """Differs when the tokens of some text may differ."""
        return digest(self.library.to_str().encode())

    # ---- use

    def __len__(self) -> int:
        return self.vocabulary.size

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of a text; with `special`, a "[MASK]" written in it becomes the mask."""
        self.library.encode_special_tokens = not special
        try:
            return list(self.library.encode(text, add_special_tokens=False).ids)
        finally:
            self.library.encode_special_tokens = True

    def decode(self, tokens: Iterable[int], special: bool = False) -> str:
        """The text of tokens; with `special`, the special tokens are written out."""
        return self.library.decode(
            [int(token) for token in tokens], skip_special_tokens=not special
        )

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """How the vocabulary spells each token."""
        return [str(self.library.id_to_token(int(token))) for token in tokens]

    def __getitem__(self, piece: str) -> int:
        """The number of one token of the vocabulary, given as the vocabulary spells it."""
        number = self.library.token_to_id(piece)
        if number is None:
            raise KeyError(f"{piece!r} is not in the vocabulary of {len(self)} tokens")
        return int(number)

    def watch(self, word: str) -> list[list[str]]:
        """How a word falls into tokens: what stands there before each step, and at the end.

        BPE begins with characters and joins the pair that was learned first; WordPiece begins
        with the whole word and cuts off the longest piece that it knows.
        """
        model = json.loads(self.library.to_str())["model"]
        if self.library.pre_tokenizer is not None and model["type"] == "BPE":
            parts = [part for part, _ in self.library.pre_tokenizer.pre_tokenize_str(word)]
            if len(parts) != 1:
                raise ValueError(f"{word!r} is {len(parts)} words to this tokenizer: give one")
            merges = [tuple(merge) for merge in model["merges"]]
            return merge_steps(parts[0], merges)
        if model["type"] == "WordPiece":
            if self.library.normalizer is not None:
                word = self.library.normalizer.normalize_str(word)
            steps = split_steps(word, model["vocab"], model["continuing_subword_prefix"])
            too_long = len(word) > model["max_input_chars_per_word"]
            return [[word], [model["unk_token"]]] if steps is None or too_long else steps
        raise ValueError(
            f"a {model['type']} tokenizer has no steps to watch: take BPE or WordPiece"
        )


# ---- how the library is put together


def _byte_level(library: Library) -> Library:
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _bert(library: Library, lowercase: bool) -> Library:
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return library


def _read_word_pieces(path: Path, lowercase: bool | None) -> Library:
    pieces = path.read_text(encoding="utf-8").splitlines()
    config = path.with_name("tokenizer_config.json")
    if lowercase is None and config.is_file():
        lowercase = _read_json(config).get("do_lower_case")
    if lowercase is None:
        names = {name for role in ROLES.values() for name in role}
        lowercase = not any(piece != piece.lower() for piece in pieces if piece not in names)
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if "[UNK]" not in vocabulary:
        raise ValueError(f"{path} has no line [UNK]: it is not a WordPiece vocabulary")
    library = Library(models.WordPiece(vocabulary, unk_token="[UNK]"))
    return _with_special(_bert(library, lowercase), _special_names(vocabulary))


def _read_byte_level(path: Path) -> Library:
    merges = path.with_name("merges.txt")
    if not merges.is_file():
        raise FileNotFoundError(f"{path} needs the merges of its BPE in {merges}")
    vocabulary = _read_json(path)
    library = _byte_level(Library(models.BPE.from_file(str(path), str(merges))))
    return _with_special(library, _special_names(vocabulary))


def _special_names(vocabulary: dict[str, int]) -> list[str]:
    return [name for names in ROLES.values() for name in names if name in vocabulary]


def _with_special(library: Library, names: Iterable[str]) -> Library:
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    return library


def _read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not a tokenizer or vocabulary")
    return content


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
    if size < least:
        raise ValueError(f"size is {size}: the bytes and special tokens alone are {least}")
    return size
