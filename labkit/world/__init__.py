"""A language whose every probability is known: the measure of every model of the course.

    world = load_world()                                the language of data/language
    world.sample(documents=100, seed=0)                 documents with what is hidden in them
    world.log_probability(words)                        log p(word | all before), or after
    world.next_word(words)                              the distribution of the next word
    world.following(texts)                              the same after each word of many texts
    world.conditional(words, hidden=[3, 4])             the distributions of hidden words
    world.joint(words, hidden=[3, 4])                   log p of them together; world.gap: the gain
    world.posterior(words, "topic")                     chances of its topics, senses, …
    world.floor("next", documents)                      the lowest loss of an objective
    world.labelled("feeling", 1000)                     labelled examples and the best accuracy
    world.few_shot(2, 1000)                             prompts with two solved pairs, and the same
    world.is_sentence(words)                            whether the language can say it
    world.are_sentences([words, ...])                   the same of many sentences at once

Files, in the order to read them: `grammar.py` holds what `reading.py` and `patterns.py` read from a
folder; `plan.py`, `builder.py` and `machine.py` compile it to a hidden Markov model, which
`compiled.py` keeps in a file; `memory.py` is what a document remembers; `sampling.py` draws
documents; `sums.py` holds the forward and backward sums, also for words that may be wrong;
`exact.py`, `hidden.py` and `following.py` turn the sums into probabilities, `floors.py`,
`labelled.py` and `prompts.py` these into floors and best accuracies; `world.py` puts all of it
together. `translation.py` gives the chance of every translation, and `foreign.py` its target as a
language; `answers.py` lists all answers to a prompt, `optimal.py` finds the best policy for a
reward; `sides.py` compares one side, two sides side by side, and both at once.
"""

from labkit.world.grammar import WorldError
from labkit.world.machine import END
from labkit.world.sampling import Annotations, Document
from labkit.world.translation import Translator, load_translator
from labkit.world.world import LANGUAGES, World, load_world

__all__ = [
    "END",
    "LANGUAGES",
    "Annotations",
    "Document",
    "Translator",
    "World",
    "WorldError",
    "load_translator",
    "load_world",
]
