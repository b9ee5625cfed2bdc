"""Made sysfs and device trees: what a machine with AMD GPUs would show, on a machine without any.

Nothing here was recorded as a whole. The numbers are those of real hardware, put together into a tree that has just the
files which a device plugin reads.
"""

from tests.trees.products import PRODUCTS, Product
from tests.trees.tree import MadeGpu, make_tree, partitions

__all__ = ["PRODUCTS", "MadeGpu", "Product", "make_tree", "partitions"]
