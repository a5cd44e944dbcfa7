"""Notebooks that stay clean: opening one in JupyterLab changes neither its mark nor its file.

JupyterLab writes the kernel's name and the version of Python into every notebook that it opens. So
they are filled in before the page sees the notebook, and taken out again before it is written.
"""

from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

from classroom.cli.lab import METADATA


class CleanNotebooks(AsyncLargeFileManager):
    """JupyterLab's own manager of files, except for that metadata."""

    async def get(self, path: str, content: bool = True, *args: Any, **more: Any) -> dict[str, Any]:
        """Return a file or a folder; a notebook as the kernel of this machine would write it."""
        model: dict[str, Any] = await super().get(path, content, *args, **more)
        if is_ours(model):
            model["content"]["metadata"].update(filled())
        return model

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """Write a file; a notebook without the metadata that opening it has added."""
        if is_ours(model):
            model["content"]["metadata"].update(METADATA)
        saved: dict[str, Any] = await super().save(model, path)
        return saved


def is_ours(model: dict[str, Any]) -> bool:
    """Whether this is a whole notebook that runs with the usual kernel of Python."""
    if model.get("type") != "notebook" or not model.get("content"):
        return False
    kernel = model["content"].get("metadata", {}).get("kernelspec", {})
    return bool(kernel.get("name") == METADATA["kernelspec"]["name"])


def filled() -> dict[str, Any]:
    """The metadata that JupyterLab writes once the kernel runs."""
    from ipykernel.ipkernel import IPythonKernel
    from jupyter_client.kernelspec import KernelSpecManager

    name = METADATA["kernelspec"]["name"]
    shown = KernelSpecManager().get_kernel_spec(name).display_name
    spec = {"display_name": shown, "language": "python", "name": name}
    return {"kernelspec": spec, "language_info": dict(IPythonKernel.language_info)}
