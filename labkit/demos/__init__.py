"""Demos that a hand can play with: each a pure function of its state, with a widget around it.

    masking_demo(text="The cat sat on the mat.")
    masking_demo(texts=corpus, tokenizer=tokenizer, model=model, world=world)
    sampling_demo(model, tokenizer, "the most beautiful place", world=world)
    orders_demo("New York is a city", "2 1 3 5 4")
    show(masking.causal)                                the source, as it runs

Read `drawing` for the pieces, `base` for the widget, and then one demo.
"""

from labkit.demos.base import Demo
from labkit.demos.drawing import View
from labkit.demos.masking import Masking, masking_demo, masking_view
from labkit.demos.orders import orders_demo, orders_view
from labkit.demos.sampling import sampling_demo, sampling_view
from labkit.demos.source import show

__all__ = [
    "Demo",
    "Masking",
    "View",
    "masking_demo",
    "masking_view",
    "orders_demo",
    "orders_view",
    "sampling_demo",
    "sampling_view",
    "show",
]
