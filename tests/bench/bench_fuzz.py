"""Random and damaged inputs, 10,000 of each kind: `python -m labkit bench fuzz --help`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    command = [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]]
    sys.exit(subprocess.call(command, cwd=ROOT))
