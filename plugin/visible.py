"""`ROCR_VISIBLE_DEVICES`: naming a container's GPUs so that ROCr understands.

ROCr takes its own UUIDs (`GPU-` and KFD's unique id) and indexes. The first entry that it does not know ends the list
without a message, so a wrong one leaves the container without a GPU. A UUID holds however many devices the container
sees; an index counts only the devices that are mounted, so it is right only where nothing else is.
"""

from collections.abc import Sequence

from plugin.discovery import Gpu


def visible_devices(allocated: Sequence[Gpu]) -> str:
    """Return the value for a container's GPUs, in the order in which it shall see them.

    Args:
        allocated: the container's GPUs; just their render nodes are mounted.
    """
    uuids = [gpu.rocr_id for gpu in allocated if gpu.rocr_id is not None]
    if len(uuids) == len(allocated):
        return ",".join(uuids)
    mounted = sorted(allocated, key=lambda gpu: gpu.kfd_node)
    return ",".join(str(mounted.index(gpu)) for gpu in allocated)
