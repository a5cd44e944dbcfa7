"""What is wrong in the files of a language is refused, with file, line and what was expected."""

import math
from pathlib import Path

import pytest

from labkit.keeping.paths import data_path
from labkit.text.tokenizers import Tokenizer
from labkit.world import END, WorldError, load_world
from labkit.world.forms import FORMS, tenses
from labkit.world.world import world_from_text

GOOD = """documents
    story 1 begins with walk
fact hero he
    anna she, ben he 2
words fruit
    apple 2, pear, ice cream
topic walk
    leads to end 2, walk
stage begin again 0.5
    2 {hero} ate {a fruit} (at home|) .
    the <dog|dogs> <was|were> near the bank~river .
held_out
    pear
"""


def test_the_good_language_is_read() -> None:
    world = world_from_text({"good.txt": GOOD})
    assert world.is_sentence(["anna", "ate", "an", "apple", "at", "home", "."])
    assert world.is_sentence(["anna", "ate", "an", "ice", "cream", "."])
    assert not world.is_sentence(["anna", "ate", "a", "pear", "."])
    assert not world.is_sentence(["the", "dog", "were", "near", "the", "bank", "."])


SAID = "the <dog|dogs> <was|were> near the bank~river .\n"
TABLE = "table t name old\n    leo no\n"
# (what is replaced, by what, the line of the complaint, what it says)
MISTAKES = [
    ("apple 2", "apple, 10%", 6, "write letters and digits"),
    ("apple 2", "u.s. 2", 6, '"u.s." would be split into several tokens'),
    ("at home|", "at c++|", 10, '"c++" would be split into several tokens'),
    ("at home|", "at@home|", 10, '"at@home" would be split into several tokens'),
    ("held_out", "table t name town\n    leo 3.5\nheld_out", 13, '"3.5" would be split'),
    ("{a fruit}", "{a friut}", 10, 'not "friut": did you mean "fruit"?'),
    ("{hero} ate", "{hero.she} ate", 10, 'did you mean "hero.he"?'),
    ("apple 2", "apple -2", 6, "at least 0.000001"),
    ("apple 2", "apple 0", 6, "at least 0.000001"),
    ("apple 2", "apple 1e308", 6, "at most 1000000"),
    ("leads to end 2, walk", "leads to end 1e-17, walk", 8, "at least 0.000001"),
    ("2 {hero}", "-2 {hero}", 10, "at least 0.000001"),
    ("again 0.5", "again 1.5", 9, "at most 0.99"),
    ("again 0.5", "agian 0.5", 9, 'did you mean "again"?'),
    ("again 0.5", "again", 9, 'a number after "again"'),
    ("story 1 begins with walk", "story begins with walk", 2, "KIND WEIGHT begins with"),
    ("begins with walk", "begins with wlak", 2, "expected a topic"),
    ("leads to end 2, walk", "leads to end 2, wlak", 8, 'did you mean "walk"?'),
    ("leads to end 2, walk", "leads to walk", 7, "no document can end"),
    ("    leads to end 2, walk\n", "", 7, "leads nowhere"),
    ("    leads to end 2, walk", "    laeds to end", 8, "expected `leads to"),
    ("    leads to end 2, walk", "    feelings", 8, "expected `leads to"),
    ("    leads to end 2, walk", "    feelings good bad agrees 0.8", 8, "expected `leads to"),
    ("at home|) .", "at home|) ", 10, 'ends with " ."'),
    ("(at home|)", "(at home|", 10, 'expected ")"'),
    ("(at home|)", "at home|)", 10, "without its opening bracket"),
    ("<was|were>", "<was|were|be>", 11, "equally many sides"),
    ("bank~river", "bank~", 11, "word~sense"),
    ("bank~river", "bank]", 11, "small letters"),
    ("apple 2, pear", "apple/, pear", 6, "expected a word"),
    ("apple 2, pear", "/ran, pear", 6, "expected a word"),
    ("held_out", "verbs go\n    run/\nheld_out", 13, "expected a word"),
    ("2 {hero} ate", "2 {hero} {any} ate", 10, "words that these documents remember"),
    ("the <dog", "The <dog", 11, "small letters"),
    ("words fruit", "wrods fruit", 5, 'did you mean "words"?'),
    ("words fruit", "words", 5, "expected a name"),
    ("words fruit", "words fruit zpif", 5, '"urn 2" or "zipf 0.4"'),
    ("words fruit", "words fruit styled 5", 5, 'after `words fruit`, not "5"'),
    ("words fruit", "words fruit zipf 1 2", 5, 'after `words fruit`, not "2"'),
    ("    apple 2, pear, ice cream\n", "", 5, "is empty"),
    ("apple 2, pear", "apple 2,, pear", 6, "between two commas"),
    ("anna she, ben he 2", "anna, ben he 2", 4, "expected 2 words"),
    ("    pear\n", "    paer\n", 13, 'did you mean "pear"?'),
    ("    pear\n", "    apple, pear, ice\n", 6, "all of"),
    ("near the bank", "near anna bank", 11, 'belongs to the fact "hero"'),
    ("the <dog|dogs>", "pear <dog|dogs>", 13, "a prompt contains it"),
    ("documents\n", "words fruit\n    plum\ndocuments\n", 7, "was defined already in bad.txt:2"),
    ("held_out", "phrase fruit\n    a plum\nheld_out", 12, "was defined already in bad.txt:6"),
    ("held_out", "table hero name\n    leo\nheld_out", 12, "was defined already in bad.txt:3"),
    ("held_out", "fact fruit\n    plum\nheld_out", 12, "was defined already in bad.txt:6"),
    ("held_out", "nouns hero\n    plum\nheld_out", 12, "was defined already in bad.txt:3"),
    ("words fruit", "words any\n    plum\nwords fruit", 5, '"any" already has a meaning'),
    ("fact hero he", "fact tense he", 3, "give the fact another name"),
    (
        "held_out",
        "topic sea\n    leads to end\nstage only\n    the sea .\nheld_out",
        12,
        "no document reaches",
    ),
    ("held_out", "words fruit\n    plum\nheld_out", 12, "was defined already in bad.txt:"),
    ("held_out", "topic sea\n    comes after walk\n    leads to end\nheld_out", 12, "has no stage"),
    ("topic walk", "topic end", 7, "give the topic another name"),
    ("topic walk", "topic relations", 7, '"relations" already has a meaning'),
    ("held_out", "stage more\n    (a|) (b|) .\nheld_out", 13, "may be left out"),
    ("held_out", "stage more\nheld_out", 12, "has no sentences"),
    ("held_out", "relation r\n    a = b\nheld_out", 12, "no document reaches the relations"),
    ("held_out", "relation r\n    a b\nheld_out", 13, "question = answer"),
    ("topic walk\n    leads to end 2, walk\n", "", 7, "a stage belongs to a topic"),
    ("(at home|)", "(" * 3000 + "at home" + ")" * 3000, 10, "more than 20 deep"),
    ("words fruit", "words fruit urn 0", 5, "at least 0.000001"),
    ("words fruit", "words fruit urn 2", 5, "an urn holds single words"),
    ("(at home|)", "(0 at home|)", 10, "at least 0.000001"),
    ("(at home|)", "[walk", 10, "expected `[verb]`"),
    ("(at home|)", "[{frut}]", 10, "a list of verbs"),
    ("(at home|)", "<g=x+y>", 10, 'the variable "x" has no value'),
    ("(at home|)", "<x=0,0>", 10, "one of the weights"),
    ("(at home|)", "<x=0,1000001>", 10, "0, or at least 0.000001 and at most 1000000"),
    ("(at home|)", "<x~2: a|b>", 10, "at most 1"),
    ("(at home|)", "<x: a|b", 10, 'expected ">"'),
    ("held_out", "phrase when\nheld_out", 12, "is empty"),
    ("held_out", "table t name town\n    leo\nheld_out", 13, "expected 2 words"),
    ("held_out", "table t name town\nheld_out", 12, "has no rows"),
    (SAID, "{t} was .\n" + TABLE, 11, "expected `{t.COLUMN}`"),
    (SAID, "{a t.name} was .\n" + TABLE, 11, "without an article"),
    (SAID, "{t!old.name} was .\n" + TABLE, 11, 'no row of "t" has "yes"'),
    (
        SAID,
        "[{lies}+] .\nverbs lies\n    lie/lay, lay/laid\n",
        11,
        "share a form in different tenses",
    ),
]


def test_a_name_that_is_near_stands_for_all_others() -> None:
    with pytest.raises(WorldError, match=r'did you mean "fruit"\?$'):
        world_from_text({"bad.txt": GOOD.replace("{a fruit}", "{a friut}")})
    with pytest.raises(WorldError, match='not "xyz": There are: '):
        world_from_text({"bad.txt": GOOD.replace("{a fruit}", "{a xyz}")})


@pytest.mark.parametrize(("old", "new", "line", "says"), MISTAKES)
def test_a_mistake_is_refused_with_its_place(old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    with pytest.raises(WorldError) as caught:
        world_from_text({"bad.txt": GOOD.replace(old, new, 1)})
    assert str(caught.value).startswith(f"bad.txt:{line}: ")
    assert says in str(caught.value)


def test_every_word_that_is_read_is_one_token() -> None:
    known = ["naïve", "nai\u0308ve", "o'clock", "mother-in-law", "10", "%", "हिन्दी"]
    world = world_from_text({"good.txt": GOOD.replace("apple 2", ", ".join(known))})
    words = [word for word in world.vocabulary if word != END]
    assert {"naïve", "o'clock", "%", "हिन्दी"} < set(words)
    assert "nai\u0308ve" not in words
    tokenizer = Tokenizer.words([" ".join(words)])
    assert tokenizer.pieces(tokenizer.encode(" ".join(words))) == words
    for word in ("10%", "3.5", "n'", "'s", "a--b", "x\u200cy"):
        assert len(Tokenizer.words([word]).encode(word)) > 1, word
        with pytest.raises(WorldError, match="would be split into several tokens"):
            world_from_text({"bad.txt": GOOD.replace("apple 2", f"apple, {word}, plum")})


def test_a_word_of_two_letters_is_no_verb_that_doubles_its_end() -> None:
    assert FORMS["verbs"][".ing"]("ok", []) == "oking"


def test_a_language_without_documents_is_refused() -> None:
    with pytest.raises(WorldError, match="no `documents` block"):
        world_from_text({"bad.txt": "words fruit\n    apple\n"})


def test_one_list_cannot_hold_two_senses_of_a_word() -> None:
    text = GOOD.replace("ice cream", "bat~animal, bat~sport")
    with pytest.raises(WorldError, match="in two senses"):
        world_from_text({"bad.txt": text})


def test_the_readme_teaches_a_topic_that_works() -> None:
    folder = data_path("language")
    blocks = (folder / "README.md").read_text("utf-8").split("```")[1::2]
    topic = next(block for block in blocks if block.lstrip("\n").startswith("topic "))
    files = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))}
    world = world_from_text(files | {"bakery.txt": topic.lstrip("\n")})
    topics = {t for d in world.sample(documents=150) for t in d.annotations.topics}
    assert "bakery" in topics


@pytest.mark.parametrize(
    ("kind", "entry", "forms"),
    [
        ("nouns", "dog", ["dog", "dogs"]),
        ("nouns", "fox", ["fox", "foxes"]),
        ("nouns", "berry", ["berry", "berries"]),
        ("nouns", "toy", ["toy", "toys"]),
        ("nouns", "mouse/mice", ["mouse", "mice"]),
        ("verbs", "stop", ["stop", "stops", "stopped", "stopping"]),
        ("verbs", "bake", ["bake", "bakes", "baked", "baking"]),
        ("verbs", "carry", ["carry", "carries", "carried", "carrying"]),
        ("verbs", "play", ["play", "plays", "played", "playing"]),
        ("verbs", "watch", ["watch", "watches", "watched", "watching"]),
        ("verbs", "run/ran", ["run", "runs", "ran", "running"]),
        ("verbs", "clean", ["clean", "cleans", "cleaned", "cleaning"]),
        ("verbs", "admit/admitted/admitting", ["admit", "admits", "admitted", "admitting"]),
    ],
)
def test_forms(kind: str, entry: str, forms: list[str]) -> None:
    lemma, *irregular = entry.split("/")
    assert [inflect(lemma, irregular) for inflect in FORMS[kind].values()] == forms


def test_a_phrase_is_no_part_of_itself() -> None:
    text = GOOD.replace("(at home|)", "{when}") + "phrase when\n    now {when}\n"
    with pytest.raises(WorldError, match="is a part of itself"):
        world_from_text({"bad.txt": text})


def test_a_phrase_may_be_called_as_verbs_are() -> None:
    """{say} is the phrase, and [{say}] one of the verbs."""
    phrase, verbs = "phrase say\n    at home\n", "verbs say\n    say, claim\n"
    for more in (phrase + verbs, verbs + phrase):
        text = GOOD.replace("(at home|)", "{say} and [{say}] so") + more
        world = world_from_text({"good.txt": text})
        said = ["anna", "ate", "an", "apple", "at", "home", "and", "claimed", "so", "."]
        assert world.is_sentence(said)


def test_what_is_remembered_is_said_by_its_slots_alone() -> None:
    text = GOOD.replace("words fruit", "words fruit urn 2").replace(", ice cream", ", plum")
    assert world_from_text({"good.txt": text}).memory.groups[1].styles == 1
    with pytest.raises(WorldError, match=r'bad.txt:11: "plum" belongs to the urn "fruit"'):
        world_from_text({"bad.txt": text.replace("the <dog", "plum <dog")})


def test_two_families_share_no_word() -> None:
    text = GOOD.replace("words fruit", "words fruit urn 2").replace(", ice cream", ", anna")
    with pytest.raises(WorldError, match='"anna" belongs to "hero" and to "fruit"'):
        world_from_text({"bad.txt": text})


def test_values_of_a_fact_may_share_their_words() -> None:
    text = GOOD.replace("    anna she, ben he 2\n", "    she: anna\n    he: ben 2\n")
    one, other = world_from_text({"a.txt": GOOD}), world_from_text({"a.txt": text})
    assert one.log_probability(["ben", "ate"]).sum() == other.log_probability(["ben", "ate"]).sum()


def test_facts_whose_fields_combine_in_too_many_ways_are_refused() -> None:
    """A sum over 16 classes has 2^16 columns; one over 24 would fill the memory."""
    text = GOOD.replace("the <dog", "it [be] the <dog")
    facts = [f"fact f{n} g\n    one{n} a, two{n} b\n" for n in range(40)]
    assert len(world_from_text({"good.txt": text + "".join(facts[:2])}).machine.prior) == 16
    for more, count in ((3, "32"), (40, "4,398,046,511,104")):
        with pytest.raises(WorldError) as caught:
            world_from_text({"bad.txt": text + "".join(facts[:more])})
        assert str(caught.value).startswith(f"bad.txt:{12 + 2 * more}: the words of tense, hero, ")
        assert f"combine in {count} ways: at most 16 are allowed, so" in str(caught.value)


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"words fruit\n    p\xeache\n")
    with pytest.raises(ValueError, match=r"bad\.txt.*UTF-8"):
        load_world(tmp_path)


def test_tenses() -> None:
    assert tenses("be") == ("is", "are", "was", "were")
    assert tenses("go") == ("goes", "go", "went", "went")
    assert tenses("carry") == ("carries", "carry", "carried", "carried")


def test_a_folder_that_is_no_language_is_not_read_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.world.world.MOST_FILES", 3)
    for n in range(4):
        (tmp_path / f"{n}.txt").write_text("")
    with pytest.raises(ValueError, match=r"holds more than 3 \.txt files"):
        load_world(tmp_path)
    monkeypatch.setattr("labkit.world.world.LARGEST_FILE", 5)
    (tmp_path / "3.txt").unlink()
    (tmp_path / "2.txt").write_text("123456")
    with pytest.raises(ValueError, match=r"2\.txt has 6 bytes"):
        load_world(tmp_path)


ONE_QUESTION = """documents
    story 1 begins with walk
    prompt 1 begins with relations
topic walk
    leads to end
stage one
    hello there .
relation capital
    italy = rome, italy = milan
"""


def test_what_has_no_end_is_not_begun() -> None:
    """Shots need different questions, and a pair of texts has words."""
    world = world_from_text({"a.txt": ONE_QUESTION})
    with pytest.raises(ValueError, match="shots is 1: give a whole number from 0 to 0"):
        world.few_shot(1, 5)
    for size in (math.nan, 10**30, 0):
        with pytest.raises(ValueError, match="size is"):
            world.few_shot(0, size)
    for odds in (world.order_odds, world.next_odds):
        with pytest.raises(ValueError, match="has no words"):
            odds([([], ["italy"])])
