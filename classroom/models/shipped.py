"""Models that ship with the course: trained once, loaded in a second.

    model, tokenizer = trained("gpt-village")
    card("gpt-village")["held_out"]                 the loss on text that it has never read
    python -m labkit train gpt-village              train it again (`shipped_recipes`)

A model is a folder of `data/models`: the weights, in 16 bits or rounded to 8, its tokenizer, and a
card. The card says which command trained it, on what, for how long, and how good it is.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from classroom.versions import CARD
from labkit.blocks import Model
from labkit.keeping.cache import kept
from labkit.keeping.files import digest, read_json, save_aligned
from labkit.keeping.paths import data_path
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import weights
from labkit.weights import load, load_tokenizer
from labkit.weights.ours import DESCRIPTION


def trained(name: str | Path) -> tuple[Any, Tokenizer]:
    """A model that ships with the course, ready to be used, and its tokenizer.

    `name` may also be a folder that `python -m labkit train gpt --text …` has written.
    """
    folder = _folder(name)
    model = load(folder, dtype=torch.float32)
    assert isinstance(model, Model)
    share(model, (folder / DESCRIPTION).read_bytes())
    return model, load_tokenizer(folder)


def share(model: Model, key: bytes) -> None:
    """Map the weights from a file of the cache, so that the kernels of a class share them.

    Training changes a private copy, page by page. The process that writes the file keeps its own
    weights.
    """
    own = weights(model)

    def read(path: Path) -> dict[str, Tensor]:
        flat = load_file(path)
        found = {name: flat[name][: t.numel()].view(t.shape) for name, t in own.items()}
        if not all(same_bytes(found[name], t) for name, t in own.items()):
            raise ValueError("it holds other weights")
        return found

    name = f"weights-{digest(key)[:32]}"
    mapped = kept(name, ".safetensors", lambda: own, save_aligned, read, quiet=True)
    for part, tensor in mapped.items():
        own[part].data = tensor


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape hold the same bits."""
    rows = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and torch.equal(*rows)


def card(name: str | Path) -> dict[str, Any]:
    """What is known of a model that ships: how it was trained and what it was measured at."""
    return read_json(_folder(name) / CARD)


def tokens_read(name: str) -> int:
    """How many tokens a model that ships was trained on, each as often as it was read."""
    run = card(name)["recipe"]
    steps = run["steps"] + sum(steps for _, steps in run.get("shorter", ()))
    last = run.get("ending") or {"steps": 0, "length": None}
    longer = last["steps"] * (last["length"] or run["length"])
    return int(run["batch"] * (steps * run["length"] + longer))


def names() -> list[str]:
    """The models that ship."""
    return sorted(path.parent.name for path in data_path("models").glob(f"*/{CARD}"))


def _folder(name: str | Path) -> Path:
    here, shipped = Path(name), data_path("models") / name
    # A folder of one's own may be called like a model that ships: a path is always that folder.
    is_path = isinstance(name, Path) or name != here.name
    for folder in (here, shipped) if is_path else (shipped, here):
        if (folder / CARD).is_file():
            return folder
    if here.is_dir() and is_path:
        raise ValueError(
            f"{here} has no {CARD}, which `labkit train` writes: read a model that weights.save "
            "wrote with labkit.weights.load and load_tokenizer"
        )
    raise ValueError(
        f"no model {str(name)!r} ships with the course: choose {', '.join(names())}, "
        "or a folder that `labkit train` wrote"
    )
