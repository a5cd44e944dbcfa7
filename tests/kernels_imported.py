"""What takes long to import, for the process of which `tests.kernels` makes copies."""

import gc
import importlib

IMPORTED = ("torch._dynamo", "ipykernel.kernelapp", "ipykernel.ipkernel", "ipywidgets",
            "matplotlib.pyplot", "matplotlib_inline.backend_inline", "labkit.trainer",
            "labkit.world", "classroom.demos", "classroom.exercises.checking", "classroom.findings",
            "classroom.live", "classroom.shipped")  # fmt: skip

for name in IMPORTED:
    importlib.import_module(name)
# The garbage collector of a copy need not look at what all copies share.
gc.collect()
gc.freeze()
