"""What takes long to import, for the process of which `tests.kernels` makes copies."""

import gc
import importlib

from classroom.running.light import light_papermill
from labkit.world import load_world

IMPORTED = ("torch._dynamo", "ipykernel.kernelapp", "ipykernel.ipkernel", "ipywidgets",
            "matplotlib.pyplot", "matplotlib_inline.backend_inline", "scipy.special",
            "labkit.trainer", "classroom.demos", "classroom.exercises.checking",
            "classroom.findings", "classroom.charts.live",
            "classroom.models.shipped_recipes")  # fmt: skip

light_papermill()
for name in IMPORTED:
    importlib.import_module(name)
# To compile the language of the course takes as long as many an import.
load_world()
# The garbage collector of a copy need not look at what all copies share.
gc.collect()
gc.freeze()
