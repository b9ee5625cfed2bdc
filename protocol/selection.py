"""A pod's own wishes, in HAMi's annotations: which GPUs it accepts, and whether full or empty ones are preferred.

`hami.io/gpu-scheduler-policy` may be several values joined by commas. The first `binpack` or `spread` among them says
which GPUs are preferred. `mutex` accepts only GPUs that no other pod holds a share of; others may come to share them
later. `numa` and `topology-aware` ask for what every pod gets that needs several GPUs, see `protocol.placement`.

A blank annotation is no wish. Members of a list are trimmed and empty ones passed over, so that a list of nothing but
commas admits no GPU under `use-`, and excludes none under `nouse-`. Types match as a part of the product name, in any
case; ids match whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.devices import DeviceInfo
from protocol.faults import Fault
from protocol.policy import Policy

USE_TYPE: Final = "amd.com/use-gputype"
NO_TYPE: Final = "amd.com/nouse-gputype"
USE_ID: Final = "amd.com/use-gpu-uuid"
NO_ID: Final = "amd.com/nouse-gpu-uuid"
USE_INDEX: Final = "amd.com/gpu-index"
_MUTEX: Final = "mutex"
LISTS: Final = (USE_TYPE, NO_TYPE, USE_ID, NO_ID, USE_INDEX)
MAX_LIST_LENGTH: Final = 16 * 1024
"""Characters: some 400 ids. What a pod accepts is remembered, and an annotation may have 256 KiB."""
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which GPUs a pod accepts; None stands for any.

    Attributes:
        types: parts of product names, upper case, of which one must occur.
        no_types: parts of product names, upper case, of which none may occur.
        ids: the only device ids.
        no_ids: device ids that are not accepted.
        indexes: the only indexes on a node, as text.
        unshared: only GPUs that no other pod holds a share of.
    """

    # A user's annotation may name tens of thousands of types, and a cluster have as many GPUs, but of few products.
    _of_products: dict[str, str] = field(default_factory=dict, compare=False, repr=False, kw_only=True)

    types: tuple[str, ...] | None = None
    no_types: tuple[str, ...] = ()
    ids: frozenset[str] | None = None
    no_ids: frozenset[str] = frozenset()
    indexes: frozenset[str] | None = None
    unshared: bool = False

    def obstacle(self, device: DeviceInfo) -> str:
        """Return why the pod does not accept a GPU, or the empty string."""
        if device.product not in self._of_products:
            self._of_products[device.product] = self._product_obstacle(device.product)
        if self._of_products[device.product]:
            return self._of_products[device.product]
        if self.ids is not None and device.id not in self.ids:
            return f"GPU is not in {USE_ID}"
        if device.id in self.no_ids:
            return f"GPU is in {NO_ID}"
        if self.indexes is not None and str(device.index) not in self.indexes:
            return f"GPU is not in {USE_INDEX}"
        return ""

    def _product_obstacle(self, product: str) -> str:
        name = product.upper()
        if self.types is not None and not any(part in name for part in self.types):
            return f"GPU type: {product} is not in {USE_TYPE}"
        if any(part in name for part in self.no_types):
            return f"GPU type: {product} is in {NO_TYPE}"
        return ""


ANY: Final = Selection()


def read_selection(annotations: Mapping[str, str]) -> Selection:
    """Return the GPUs that a pod's annotations accept."""
    types, ids, indexes = (_members(annotations, key) for key in (USE_TYPE, USE_ID, USE_INDEX))
    return Selection(
        types=None if types is None else tuple(member.upper() for member in types),
        no_types=tuple(member.upper() for member in _members(annotations, NO_TYPE) or ()),
        ids=None if ids is None else frozenset(ids),
        no_ids=frozenset(_members(annotations, NO_ID) or ()),
        indexes=None if indexes is None else frozenset(indexes),
        unshared=_MUTEX in (_members(annotations, GPU_POLICY) or ()),
    )


def selection_faults(annotations: Mapping[str, str]) -> list[Fault]:
    """Return a fault for each of a pod's lists that is too long to be meant."""
    expected = f"must have at most {MAX_LIST_LENGTH} characters"
    return [
        Fault(f"metadata.annotations[{key}]", annotations[key], expected)
        for key in LISTS
        if len(annotations.get(key, "")) > MAX_LIST_LENGTH
    ]


def read_policy(annotations: Mapping[str, str], key: str, default: Policy) -> Policy:
    """Return the policy that a pod names under a key, the first of several; the default when it names neither."""
    known = {policy.value: policy for policy in Policy}
    return next((known[member] for member in _members(annotations, key) or () if member in known), default)


def _members(annotations: Mapping[str, str], key: str) -> list[str] | None:
    text = annotations.get(key, "")
    if not text.strip():
        return None
    return [member.strip() for member in text.split(",") if member.strip()]
