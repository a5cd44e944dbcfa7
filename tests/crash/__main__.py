"""`python -m tests.crash --kills 200`"""

import argparse
import tempfile
from pathlib import Path

from . import main

parser = argparse.ArgumentParser(prog="python -m tests.crash")
parser.add_argument("--kills", type=int, default=200, help="how many processes are killed [200]")
parser.add_argument("--seed", type=int, default=0, help="of the moments at which they are [0]")
arguments = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    raise SystemExit(main(arguments.kills, Path(folder), arguments.seed))
