"""Tokenizers as files: a tokenizer.json, a vocab.txt, or a vocab.json beside merges.txt.

The library aborts, hangs or takes gigabytes on some files that are damaged. So a file is checked
here first: its size, its JSON, that the ids are 0, 1, 2, … without a gap, and that the merges
join tokens of the vocabulary.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from labkit.checks import first_line, shown
from labkit.keeping.files import read_json, read_text

LARGEST_FILE = 100_000_000  # bytes
LONGEST_TOKEN = 100_000  # characters

# What the special tokens are called in the releases; the first one that a vocabulary has counts.
# GPT-2 has one token that begins and ends: it separates the documents, as [SEP] does.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}


def load_library(path: Path, lowercase: bool | None) -> Library:
    """Read a tokenizer's file, or the one in a folder; an error is one line with its name."""
    if path.is_dir():
        names = ("tokenizer.json", "vocab.json", "vocab.txt")
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise FileNotFoundError(
                f"{path} holds none of {', '.join(names)}: save the tokenizer beside the weights, "
                "tokenizer.save(folder / 'tokenizer.json')"
            )
        path = found[0]
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: give a tokenizer's file or its folder")
    if path.suffix == ".txt":
        return _word_pieces(path, lowercase)
    content = read_json(path, LARGEST_FILE)
    # A vocabulary has numbers by words, and "model" may be one of them.
    if isinstance(content.get("model", 0), int):
        return _bpe(path, content)
    _check_model(path, content)
    # Rows are cut and padded by labkit.
    plain = json.dumps({**content, "truncation": None, "padding": None})
    library = library_call(f"{path} is not a tokenizer", Library.from_str, plain)
    _check_ids(path, library.get_vocab(), 0)
    return library


def library_call(problem: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """Call the library, whose errors are bare `Exception`s and panics of Rust, and name them."""
    try:
        return function(*arguments, **options)
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"{problem}: {first_line(error)[:300]}") from error
        raise


def byte_level(library: Library, add_prefix_space: bool = False) -> Library:
    """Text as bytes, cut into words as GPT-2 does."""
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    library.decoder = decoders.ByteLevel()
    return library


def bert(
    library: Library,
    lowercase: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> Library:
    """Text cleaned and cut into words as BERT does; with None, accents go where capitals go."""
    library.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        handle_chinese_chars=tokenize_chinese_chars,
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return library


def with_special(library: Library, names: Iterable[str]) -> Library:
    """The library with these tokens known as special ones."""
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    return library


def _word_pieces(path: Path, lowercase: bool | None) -> Library:
    pieces = _lines(path)
    options = _options(path, "do_lower_case", "strip_accents", "tokenize_chinese_chars")
    configured = options.pop("do_lower_case", None)
    lowercase = configured if lowercase is None else lowercase
    if lowercase is None:
        names = {name for role in ROLES.values() for name in role}
        lowercase = not any(piece != piece.lower() for piece in pieces if piece not in names)
    vocabulary: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if vocabulary.setdefault(piece, number) != number:
            raise ValueError(
                f"{path}, line {number + 1}: {shown(piece)} is also on line "
                f"{vocabulary[piece] + 1}; a token has one id"
            )
    if "[UNK]" not in vocabulary:
        raise ValueError(f"{path} has no line [UNK]: it is not a WordPiece vocabulary")
    _check_ids(path, vocabulary)
    library = Library(models.WordPiece(vocabulary, unk_token="[UNK]"))
    return with_special(bert(library, lowercase, **options), _special_names(vocabulary))


def _bpe(path: Path, vocabulary: dict[str, Any]) -> Library:
    file = path.with_name("merges.txt")
    if not file.is_file():
        raise FileNotFoundError(f"{path} needs the merges of its BPE in {file}")
    _check_ids(path, vocabulary)
    lines = [line for line in _lines(file) if line and not line.startswith("#version")]
    merges = [tuple(line.split(" ")) for line in lines]
    _check_merges(file, merges, vocabulary)
    # GPT-2 cuts between letters and signs, and so none of its tokens ends like those of GPT-1.
    as_gpt1 = any(piece.endswith("</w>") for piece in vocabulary)
    model = library_call(f"{file} does not fit {path}", models.BPE, vocabulary, merges)
    library = (_gpt1 if as_gpt1 else _gpt2)(path, Library(model))
    return with_special(library, _special_names(vocabulary))


def _gpt1(path: Path, library: Library) -> Library:
    """The words of BERT without capitals and accents, in characters; "</w>" ends each word."""
    if library.token_to_id("<unk>") is None:
        raise ValueError(f"{path} has no <unk> for what it lacks: give the tokenizer.json instead")
    library.model.unk_token, library.model.end_of_word_suffix = "<unk>", "</w>"
    bert(library, lowercase=True).decoder = decoders.BPEDecoder(suffix="</w>")
    return library


def _gpt2(path: Path, library: Library) -> Library:
    """Bytes; the library would drop those that are no tokens, and say nothing."""
    missing = {*pre_tokenizers.ByteLevel.alphabet()} - library.get_vocab().keys()
    if missing:
        raise ValueError(
            f"{path} is not a byte-level BPE, because it lacks {len(missing)} of the 256 bytes: "
            "give the tokenizer.json instead"
        )
    return byte_level(library, **_options(path, "add_prefix_space"))


def _options(path: Path, *names: str) -> dict[str, bool]:
    """What the tokenizer_config.json beside a vocabulary says of these, if it does."""
    config = path.with_name("tokenizer_config.json")
    found = read_json(config, LARGEST_FILE) if config.is_file() else {}
    for name in names:
        if not isinstance(found.get(name), bool | None):
            raise ValueError(f"{config} says {name}={shown(found[name])}: give true or false")
    return {name: found[name] for name in names if found.get(name) is not None}


def _special_names(vocabulary: Mapping[str, int]) -> list[str]:
    return [name for names in ROLES.values() for name in names if name in vocabulary]


# ---- checks


def _lines(path: Path) -> list[str]:
    """The lines of a file; only a line feed ends one, since tokens may hold other separators."""
    lines = read_text(path, LARGEST_FILE).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _check_model(path: Path, content: Mapping[str, Any]) -> None:
    """Check the parts of a tokenizer.json that the library does not survive."""
    model = content["model"]
    if not isinstance(model, dict):
        raise ValueError(f"{path}: its model is a {type(model).__name__}, not an object")
    vocabulary, added = model.get("vocab"), content.get("added_tokens", [])
    if isinstance(vocabulary, list):  # Unigram: pairs of a token and its score
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in vocabulary):
            raise ValueError(f"{path}: its vocabulary is not a list of tokens with their scores")
        vocabulary = {str(piece): number for number, (piece, _) in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        raise ValueError(f"{path}: its model has no vocabulary")
    if not isinstance(added, list) or not all(isinstance(one, dict) for one in added):
        raise ValueError(f"{path}: its added_tokens are not a list of objects")
    more = {str(one.get("content")): one.get("id") for one in added}
    for piece, number in more.items():
        if vocabulary.get(piece, number) != number:
            raise ValueError(
                f"{path}: {shown(piece)} has the ids {shown(vocabulary[piece])} and {shown(number)}"
            )
    _check_ids(path, vocabulary | more)
    unknown = model.get("unk_token")
    if unknown is not None and str(unknown) not in vocabulary | more:
        raise ValueError(f"{path}: its unk_token {shown(unknown)} is not in the vocabulary")
    if model.get("type") == "BPE" or "merges" in model:
        merges = model.get("merges", [])
        if not isinstance(merges, list) or not all(isinstance(one, str | list) for one in merges):
            raise ValueError(f"{path}: its merges are not a list of pairs")
        pairs = [tuple(one.split(" ") if isinstance(one, str) else one) for one in merges]
        prefix = model.get("continuing_subword_prefix") or ""
        _check_merges(path, pairs, vocabulary, len(str(prefix)))


def _check_ids(path: Path, vocabulary: Mapping[str, Any], least: int = 1) -> None:
    """The ids are 0, 1, 2, … without a gap: a large one would be a table that fills the memory."""
    size = len(vocabulary)
    if size < least:
        raise ValueError(f"{path} has an empty vocabulary")
    owner: dict[int, str] = {}
    for piece, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < size:
            raise ValueError(
                f"{path}: {shown(piece)} has the id {shown(number)}, and the {size:,} tokens "
                f"have the ids 0 to {size - 1:,}"
            )
        if owner.setdefault(number, piece) != piece:
            raise ValueError(
                f"{path}: {shown(owner[number])} and {shown(piece)} have the same id {number}"
            )
        if len(piece) > LONGEST_TOKEN:
            raise ValueError(
                f"{path}: a token has {len(piece):,} characters, at most {LONGEST_TOKEN:,}"
            )


def _check_merges(
    path: Path, merges: Sequence[tuple[Any, ...]], vocabulary: Mapping[str, int], prefix: int = 0
) -> None:
    """Each merge joins two tokens of the vocabulary to a third one."""
    for number, merge in enumerate(merges, 1):
        parts = len(merge) == 2 and all(isinstance(part, str) for part in merge)
        for token in (*merge, merge[0] + merge[1][prefix:]) if parts else ("",):
            if not parts or token not in vocabulary:
                what = f"{shown(token)} is not in the vocabulary" if parts else "it is not a pair"
                raise ValueError(f"{path}: merge {number} is {shown(merge)}, and {what}")
