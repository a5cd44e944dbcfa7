"""Interactive demos: each is a pure function of its state, with a widget around it.

    masking_demo(text="The cat sat on the mat.")
    masking_demo(texts=corpus, tokenizer=tokenizer, model=model, world=world)
    sampling_demo(model, tokenizer, "the most beautiful place", world=world)
    orders_demo("New York is a city", "2 1 3 5 4")
    floors_demo(world)
    attention_demo(model, tokenizer, "The cat sat.")
    costs_demo("GPT-3 175B", "a100")
    vectors_demo(model, tokenizer, "paris", "france paris japan")
    leaks_demo(model, objective, tokenizer, "The cat sat.")
    training_demo(floor=1.38)
    translation_demo(model, "the queen fed the cat")    the decoder beside the exact distribution
    masks_demo("The cat sat on the mat.")               static and dynamic masks, epoch by epoch
    reach_demo(segment=4, memory=4, layers=3)           how far back each layer sees
    schedule_demo(steps=400)                            the rates and the frozen layers by step
    senses_demo(model, tokenizer, probes, senses, texts, "stick")
    alignment_demo({question: asked}, beta=0.3)         policies beside the best one
    ledger_demo()                                       what was claimed, measured and judged
    show(masking.causal)                                the source, as it runs

Read `pieces`, then `rendering`, `base` for the widget, and then one demo.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from classroom.demos.alignment import alignment_demo, alignment_view
    from classroom.demos.attention import attention_demo, attention_view
    from classroom.demos.base import Demo
    from classroom.demos.costs import costs_demo, costs_view
    from classroom.demos.floors import floors_demo, floors_view
    from classroom.demos.leaks import leaks_demo, leaks_view
    from classroom.demos.ledger import ledger_demo, ledger_view
    from classroom.demos.masking import Masking, masking_demo, masking_view
    from classroom.demos.masks import masks_demo, masks_view
    from classroom.demos.orders import orders_demo, orders_view
    from classroom.demos.reach import reach_demo, reach_view
    from classroom.demos.rendering import View
    from classroom.demos.sampling import sampling_demo, sampling_view
    from classroom.demos.schedule import schedule_demo, schedule_view
    from classroom.demos.senses import senses_demo, senses_view
    from classroom.demos.source import show
    from classroom.demos.training import training_demo, training_view
    from classroom.demos.translation import translation_demo, translation_view
    from classroom.demos.vectors import vectors_demo, vectors_view

__all__ = [
    "Demo",
    "Masking",
    "View",
    "alignment_demo",
    "alignment_view",
    "attention_demo",
    "attention_view",
    "costs_demo",
    "costs_view",
    "floors_demo",
    "floors_view",
    "leaks_demo",
    "leaks_view",
    "ledger_demo",
    "ledger_view",
    "masking_demo",
    "masking_view",
    "masks_demo",
    "masks_view",
    "orders_demo",
    "orders_view",
    "reach_demo",
    "reach_view",
    "sampling_demo",
    "sampling_view",
    "schedule_demo",
    "schedule_view",
    "senses_demo",
    "senses_view",
    "show",
    "training_demo",
    "training_view",
    "translation_demo",
    "translation_view",
    "vectors_demo",
    "vectors_view",
]

# A demo's function and its pictures stand in the module of their name; the others stand here.
_ELSEWHERE = {"Demo": "base", "Masking": "masking", "View": "rendering", "show": "source"}


def __getattr__(name: str) -> object:
    """Import a demo when it is first asked for: all of them need most of labkit."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _ELSEWHERE.get(name, name.removesuffix("_demo").removesuffix("_view"))
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    """Return what Tab offers."""
    return [*globals(), *__all__]
