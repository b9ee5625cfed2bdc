"""A stand-in for machines with AMD GPUs: made sysfs and device trees, on a machine without any.

Nothing here was recorded as a whole. The numbers are those of real hardware, put together into a tree that has just the
files which a device plugin reads. It lives among the tests, as no part of the product may need it; the demo, the
benchmarks and whoever wants to look at a plugin use it from there, also as `python -m tests.trees`.
"""

from tests.trees.machines import MACHINES, describe
from tests.trees.products import PRODUCTS, Product
from tests.trees.tree import MadeGpu, make_tree, partitions

__all__ = ["MACHINES", "PRODUCTS", "MadeGpu", "Product", "describe", "make_tree", "partitions"]
