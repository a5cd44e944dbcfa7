"""Imported once, in the process of which `tests.kernels` makes copies."""

from tests.kernels import import_all

import_all()
