"""kubernetes_asyncio without its generated classes.

The package loads some 700 model and API classes when it is imported: 38 MiB and half a second in every process. Objects
are plain JSON here, so only its configuration and its client are of use.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, NoReturn

_GENERATED: Final = ("kubernetes_asyncio.client.api", "kubernetes_asyncio.client.models")


class _Finder(MetaPathFinder, Loader):
    """Finds the generated modules, and leaves them empty."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        generated = any(fullname == name or fullname.startswith(f"{name}.") for name in _GENERATED)
        return ModuleSpec(fullname, self, is_package=fullname in _GENERATED) if generated else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _placeholder


class _NotLoaded:
    """Stands where a generated class would be."""

    def __init__(self, *_arguments: object, **_more: object) -> NoReturn:
        raise NotImplementedError("the generated classes of kubernetes_asyncio are not loaded; use kube.client")


def _placeholder(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _NotLoaded


@contextmanager
def generated_classes_left_out() -> Iterator[None]:
    """Within the block, kubernetes_asyncio is imported without its generated classes, unless it was imported before."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
