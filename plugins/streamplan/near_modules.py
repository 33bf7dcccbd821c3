"""What is meant by the name of a module, or of a pipeline, that there is not: the modules that lie near."""

from __future__ import annotations

import sys
from pathlib import Path

from streamplan.errors import did_you_mean


def module_of(file: Path) -> tuple[str, Path]:
    """Return the module that a file is, with its packages, and the folder from which Python imports it."""
    root, module = file.parent, file.stem
    while (root / "__init__.py").is_file():
        root, module = root.parent, f"{root.name}.{module}"
    return module, root


def module_meant(reference: str) -> str:
    """Return what to write in place of the reference of a module that Python does not find; empty without a guess.

    Args:
        reference: As it stands in a registration.
    """
    module, _, attribute = reference.partition(":")
    if not module.strip("."):
        return "Name a module, as my_pipelines.orders."
    if module.startswith("."):
        return f"Write the whole name of the module, with its package: my_pipelines{module}."
    package, _, last = module.rpartition(".")
    if package and not attribute and (file := _file_of(package)) is not None and not _folder_of(package):
        return f"Write a colon before an object of {file}: {package}:{last}."
    if package and (folder := _folder_of(package)) is not None:
        return did_you_mean(module, [f"{package}.{each}" for each in _modules_in(folder)])
    if package:
        return ""
    inside = [f"{folder.name}.{module}" for folder in _packages() if module in _modules_in(folder)]
    named = [*(each.name for each in _packages()), *(each for folder in _searched() for each in _modules_in(folder))]
    return f"Did you mean {' or '.join(inside)}?" if inside else did_you_mean(module, named)


def file_meant(name: str) -> str:
    """Return what to write in place of the name of a pipeline that is a file or a folder; empty where it is none.

    Args:
        name: As it was given.
    """
    for path in (Path(name), Path(*name.split("."))):
        if path.with_name(f"{path.name}.py").is_file():
            return f"Did you mean the file {path}.py?"
        if path.is_dir() and name.strip("./"):
            files = ", ".join(f"{path / each}.py" for each in _modules_in(path)[:3])
            return f"{path} is a folder. Name a file of it{files and f': {files}'}."
    return ""


def _searched() -> list[Path]:
    """The folders of the path of Python that are no library's."""
    return [Path(each) for each in dict.fromkeys(sys.path) if "site-packages" not in each and "lib/python" not in each]


def _file_of(module: str) -> Path | None:
    found = (folder.joinpath(*module.split(".")).with_suffix(".py") for folder in _searched())
    return next((file for file in found if file.is_file()), None)


def _folder_of(package: str) -> Path | None:
    found = (folder.joinpath(*package.split(".")) for folder in _searched())
    return next((folder for folder in found if folder.is_dir()), None)


def _packages() -> list[Path]:
    return [
        folder
        for searched in _searched()
        if searched.is_dir()
        for folder in sorted(searched.iterdir())
        if (folder / "__init__.py").is_file()
    ]


def _modules_in(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
