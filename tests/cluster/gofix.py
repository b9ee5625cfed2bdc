"""A repair of the old Kubernetes sources for the Go compiler that Debian has.

Go 1.18 changed how reflection walks a map: the iterator is given by the caller. The vendored reflect2 1.0.1 reaches
into the runtime with the older shape, so kube-apiserver dies with a segmentation fault as soon as a mutating webhook
answers with a patch. reflect2 1.0.2 has the same repair.
"""

from pathlib import Path
from typing import Final

from tests.cluster.errors import ClusterError

_PACKAGE: Final = "vendor/github.com/modern-go/reflect2"
_REPAIRS: Final = (
    (
        "unsafe_link.go",
        "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter\n",
        "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)\n",
    ),
    # The runtime writes the whole of its own structure: two pointers, six more, and four words without pointers.
    (
        "unsafe_link.go",
        "\t// rest fields are ignored\n",
        "\tpointers [6]unsafe.Pointer\n\twords    [4]uintptr\n",
    ),
    (
        "unsafe_map.go",
        "\treturn &UnsafeMapIterator{\n\t\thiter:      mapiterinit(type2.rtype, *(*unsafe.Pointer)(obj)),\n",
        (
            "\tit := new(hiter)\n\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), it)\n"
            "\treturn &UnsafeMapIterator{\n\t\thiter:      it,\n"
        ),
    ),
)


def repair(tree: Path) -> None:
    """Change the sources below `tree` in place."""
    for name, old, new in _REPAIRS:
        file = tree / _PACKAGE / name
        text = file.read_text()
        if text.count(old) != 1:
            raise ClusterError(f"{file} is not the source that its repair was made for")
        file.write_text(text.replace(old, new))
