"""A language whose every probability is known: the measure of every model of the course.

    world = load_world()                                the language of data/world
    world.sample(documents=100, seed=0)                 documents with what is hidden in them
    world.log_probability(words)                        log p(word | all before), or after
    world.next_word(words)                              the law of the next word
    world.conditional(words, hidden=[3, 4])             the laws of hidden words, one by one

Files, in the order to read them: `grammar.py` reads `data/world`, `machine.py` compiles it to a
hidden Markov model, `sampling.py` draws documents, `sums.py` holds the forward and backward sums,
`facts.py` what is drawn once for a document, and `exact.py` turns the sums into probabilities.
"""

from labkit.world.exact import World
from labkit.world.grammar import WorldError
from labkit.world.loading import load_world
from labkit.world.machine import END
from labkit.world.sampling import Annotations, Document

__all__ = ["END", "Annotations", "Document", "World", "WorldError", "load_world"]
