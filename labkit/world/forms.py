"""Regular English inflection: the forms that `nouns` and `verbs` give to every entry.

Irregular forms follow their word after slashes: `mouse/mice`, `run/ran`,
`admit/admitted/admitting`.
"""

import re
from collections.abc import Callable

_VOWELS = "aeiou"
# Words that do not sound as they are spelled: "an honest", "an hour"; "a useful", "a one".
_AN = re.compile(r"(?!us[eu]|uni[cfqtv]|eu|one\b|once)[aeiou]|hono|hones|hour|heir")

# Auxiliaries: present singular and plural, past singular and plural.
AUXILIARIES = {
    "be": ("is", "are", "was", "were"),
    "have": ("has", "have", "had", "had"),
    "can": ("can", "can", "could", "could"),
    "will": ("will", "will", "would", "would"),
}
_IRREGULAR_PASTS = """
    become/became begin/began bite/bit blow/blew break/broke bring/brought build/built buy/bought
    catch/caught choose/chose come/came creep/crept cut/cut dig/dug do/did draw/drew drink/drank
    drive/drove eat/ate fall/fell feed/fed feel/felt find/found fly/flew forget/forgot get/got
    give/gave go/went grow/grew hang/hung hear/heard hide/hid hold/held keep/kept know/knew
    lay/laid lead/led leave/left lend/lent lie/lay light/lit lose/lost make/made mean/meant
    meet/met pay/paid prefer/preferred put/put read/read ride/rode ring/rang run/ran say/said
    see/saw sell/sold send/sent shine/shone sing/sang sit/sat sleep/slept speak/spoke spend/spent
    stand/stood steal/stole sweep/swept swim/swam swing/swung take/took teach/taught tear/tore
    tell/told think/thought throw/threw wake/woke wear/wore win/won write/wrote
"""
_PAST = dict(pair.split("/") for pair in _IRREGULAR_PASTS.split())


def plural(word: str, irregular: list[str]) -> str:
    """dog -> dogs, fox -> foxes, berry -> berries."""
    return irregular[0] if irregular else _with_s(word)


def third_person(word: str, irregular: list[str]) -> str:
    """walk -> walks, watch -> watches, carry -> carries, go -> goes; always regular."""
    return word + "es" if word.endswith("o") else _with_s(word)


def past(word: str, irregular: list[str]) -> str:
    """walk -> walked, stop -> stopped, carry -> carried, bake -> baked."""
    if irregular or word in _PAST:
        return irregular[0] if irregular else _PAST[word]
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if _ends_in_y(word) else _doubled(word) + "ed"


def progressive(word: str, irregular: list[str]) -> str:
    """walk -> walking, stop -> stopping, bake -> baking, see -> seeing."""
    if len(irregular) > 1:
        return irregular[1]
    if word.endswith("e") and not word.endswith(("ee", "ye", "oe")):
        return word[:-1] + "ing"
    return _doubled(word) + "ing"


def base(word: str, irregular: list[str]) -> str:
    """The word unchanged."""
    return word


FORMS: dict[str, dict[str, Callable[[str, list[str]], str]]] = {
    "words": {"": base},
    "nouns": {"": base, ".s": plural},
    "verbs": {"": base, ".s": third_person, ".ed": past, ".ing": progressive},
}


def takes_an(word: str) -> bool:
    """Whether the article before a word is "an": an apple, an hour, a useful bag."""
    return _AN.match(word) is not None


def tenses(verb: str) -> tuple[str, str, str, str]:
    """Present singular and plural, past singular and plural: walks, walk, walked, walked."""
    if verb in AUXILIARIES:
        return AUXILIARIES[verb]
    return third_person(verb, []), verb, past(verb, []), past(verb, [])


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    return word[:-1] + "ies" if _ends_in_y(word) else word + "s"


def _ends_in_y(word: str) -> bool:
    return word.endswith("y") and word[-2:-1] not in _VOWELS


def _doubled(word: str) -> str:
    """Double the last consonant of a short word: stop -> stopp-, but help, play, open stay."""
    if len(word) < 3:
        return word
    short = sum(letter in _VOWELS for letter in word) == 1
    closed = word[-1] not in _VOWELS + "wxy" and word[-2] in _VOWELS and word[-3] not in _VOWELS
    return word + word[-1] if short and closed else word
