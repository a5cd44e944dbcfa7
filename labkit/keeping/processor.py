"""What this processor offers: how many cores, how many threads, and whether 16 bits are faster."""

import contextlib
import ctypes
import functools
import math
import os
import platform
import shutil
import sys
import sysconfig
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.keeping.files import cache_folder, read_json, write_json

if TYPE_CHECKING:
    import torch

MEASURED = "processor.json"
"""The file of the cache folder that remembers which precision is faster."""
MOST_THREADS = 4
"""More threads than these wait for each other in models of the course's sizes."""
CGROUP = Path("/sys/fs/cgroup")
COMPILERS = ("g++", "clang++", "c++", "cl")
# A user who sets one of these has chosen the number of threads.
CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# What a processor can do also depends on which of its features the libraries may use.
TOLD = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")


def cores() -> int:
    """Return how many cores this process may use: its affinity, within a container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    share = quota()
    return allowed if math.isinf(share) else max(1, min(allowed, math.ceil(share)))


def quota() -> float:
    """Return the cores' worth of time that a container may use; infinite where nothing says so."""
    one_file = [CGROUP / "cpu.max"]
    two_files = [CGROUP / "cpu" / f"cpu.cfs_{what}_us" for what in ("quota", "period")]
    for files in (one_file, two_files):
        with contextlib.suppress(OSError, ValueError, IndexError, ZeroDivisionError):
            words = " ".join(file.read_text() for file in files).split()
            share = float(words[0]) / float(words[1])
            if share > 0:  # -1 is no quota; "max" is no number
                return share
    return math.inf


def threads() -> tuple[int, str]:
    """Return how many threads a computation should have, and why."""
    import torch

    for name in CHOSEN:
        if os.environ.get(name):
            return torch.get_num_threads(), f"{name} says so"
    found = cores()
    if found <= MOST_THREADS:
        return found, "one for each core that this process may use"
    return MOST_THREADS, f"of {found} cores; more do not help models of the course's sizes"


def set_threads() -> None:
    """Limit torch to the threads that the rule allows; keep a smaller number that was set."""
    import torch

    torch.set_num_threads(min(torch.get_num_threads(), threads()[0]))


@functools.cache
def bfloat16_pays() -> bool:
    """Return whether a product of matrices is faster in bfloat16 than in float32.

    It is measured once for each processor, version of torch and setting of its libraries, and
    remembered in a file, so that the same machine always computes in the same precision.
    """
    import torch

    known: dict[str, bool] = {}
    with contextlib.suppress(OSError, ValueError):
        found = read_json(cache_folder() / MEASURED)
        known = {name: faster is True for name, faster in found.items()}
    told = [f"{name}={os.environ[name]}" for name in TOLD if name in os.environ]
    count = f"{torch.get_num_threads()} threads"
    key = " | ".join([processor_name(), f"torch {torch.__version__}", count, *told])
    if key not in known:
        known[key] = seconds(torch.bfloat16) < seconds(torch.float32)
        with contextlib.suppress(OSError):
            cache_folder().mkdir(parents=True, exist_ok=True)
            write_json(cache_folder() / MEASURED, known)
    return known[key]


def can_compile() -> bool:
    """Return whether torch can compile, with a C++ compiler and Python's headers; else warn."""
    named = os.environ.get("CXX")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not any(shutil.which(name) for name in ((named,) if named else COMPILERS)):
        lacks = (
            "a C++ compiler, and there is none on the PATH (install g++ or clang++, or name one in "
            "CXX)"
        )
    elif not headers.is_file():
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        lacks = (
            f"the headers of Python, and there is no {headers} (Debian, Ubuntu: apt-get install "
            f"{package})"
        )
    else:
        return True
    warnings.warn(f"compile=True needs {lacks}: the model is not compiled", stacklevel=2)
    return False


def give_back() -> None:
    """Give the system back what was freed: glibc keeps it, and a class has many kernels."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another library of C
        ctypes.CDLL(None).malloc_trim(0)


def seconds(dtype: "torch.dtype") -> float:
    """Return the shortest time of a product of matrices as large as those of a small model."""
    import torch

    a, b = torch.ones(512, 256, dtype=dtype), torch.ones(256, 1024, dtype=dtype)
    torch.mm(a, b)  # the first one also prepares what the others use again
    times: list[float] = []
    while len(times) < 20 and sum(times) < 0.1:
        start = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - start)
    return min(times)


def processor_name() -> str:
    """Return the name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
