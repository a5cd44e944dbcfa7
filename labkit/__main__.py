"""`python -m labkit`: the command line.  This file and `__init__` must parse on an old Python."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the message is for those who have an older one
    sys.exit(
        "labkit needs Python 3.11 or newer, and this is Python %d.%d: install a newer one and name "  # noqa: UP031
        "it, as in `make lab PYTHON=python3.12`" % tuple(sys.version_info[:2])
    )

from classroom.cli import main

sys.exit(main())
