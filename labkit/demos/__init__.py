"""Demos that a hand can play with: each a pure function of its state, with a widget around it.

    masking_demo(text="The cat sat on the mat.")
    masking_demo(texts=corpus, tokenizer=tokenizer, model=model, world=world)
    sampling_demo(model, tokenizer, "the most beautiful place", world=world)

Read `drawing` for the pieces, `base` for the widget, and then one demo.
"""

from labkit.demos.base import Demo
from labkit.demos.drawing import View
from labkit.demos.masking import Masking, masking_demo, masking_view
from labkit.demos.sampling import sampling_demo, sampling_view

__all__ = [
    "Demo",
    "Masking",
    "View",
    "masking_demo",
    "masking_view",
    "sampling_demo",
    "sampling_view",
]
