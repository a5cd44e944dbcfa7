"""`python -m labkit.world [NAME] [SEED]` prints a page of a language: "language", "crawl", …"""

import sys
import textwrap

from labkit.world.world import load_world


def main(name: str = "language", seed: str = "1") -> None:
    """Print some documents and what the language is like."""
    world = load_world(name)
    for document in world.sample(documents=8, seed=int(seed)):
        notes = document.annotations
        print(textwrap.fill(document.text, 100))
        facts = {**notes.facts, "feeling": notes.feeling, "relation": notes.relation}
        hidden = [f"{key}: {value}" for key, value in facts.items() if value]
        hidden += [f"{word} is {sense}" for _, word, sense in notes.senses[:6]]
        print(f"    ({'; '.join(hidden)})\n")
    print(f"{len(world.vocabulary):,} words, {world.machine.states:,} states")
    print(f"entropy rate: {world.entropy_rate(words=50_000)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
