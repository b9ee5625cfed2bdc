"""Make a stand-in for a machine with AMD GPUs: `python -m tests.trees FOLDER WORD...`.

A device plugin takes it with `--sysfs-root=FOLDER/sys --dev-root=FOLDER/dev`.
"""

import argparse
from pathlib import Path

from tests.trees.machines import MACHINES, describe
from tests.trees.products import PRODUCTS
from tests.trees.tree import make_tree


def main() -> None:
    names = f"machines: {', '.join(MACHINES)}; products: {', '.join(PRODUCTS)}"
    parser = argparse.ArgumentParser(prog="python -m tests.trees", description=__doc__, epilog=names)
    parser.add_argument("folder", type=Path, help="must be empty or a made tree, which is replaced")
    parser.add_argument("words", nargs="+", metavar="WORD", help="a machine, a product, or such as '4 x MI210'")
    options = parser.parse_args()
    try:
        make_tree(options.folder, describe(options.words))
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
