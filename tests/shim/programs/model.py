"""Random use of two devices, every answer compared with a model: model <library> <seed> <limit>."""

import random
import sys

from tests.shim.programs.hip import OUT_OF_MEMORY, Hip, emit

STEPS = 6000
DEVICES = 2
UNKNOWN = 0x1000
PAGE = 4096


def charged(size: int) -> int:
    """Whole pages."""
    return -(-size // PAGE) * PAGE


class Model:
    """What the library has to do."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held: list[dict[int, int]] = [{} for _ in range(DEVICES)]

    def left(self, device: int) -> int:
        """Bytes that still fit."""
        return self.limit - sum(self.held[device].values())


def allocate(hip: Hip, model: Model, device: int, size: int) -> bool:
    fits = charged(size) <= model.left(device)
    code, address = hip.malloc(size)
    assert code == (0 if fits else OUT_OF_MEMORY), f"{size} of {model.left(device)} gives {code}"
    if fits:
        assert not any(address in held for held in model.held), "an address was handed out twice"
        model.held[device][address] = charged(size)
    return fits


def release(hip: Hip, model: Model, chooser: random.Random) -> None:
    # Whatever device is current: the memory goes back to the one it was taken from.
    owner = chooser.randrange(DEVICES)
    if model.held[owner]:
        address = chooser.choice(list(model.held[owner]))
        assert hip.free(address) == 0
        del model.held[owner][address]
        assert hip.free(address) != 0, "freed twice"


def choose_size(model: Model, device: int, chooser: random.Random) -> int:
    kind = chooser.choices(["all", "over", "odd", "some"], [1, 4, 2, 33])[0]
    if kind == "all":
        return max(model.left(device), 1)
    if kind == "over":
        return model.left(device) + 1
    if kind == "odd":
        return chooser.choice([1, 1 << 40, 1 << 60, 1 << 63, (1 << 64) - 1])
    return chooser.randrange(1, model.limit // 200)


def main() -> None:
    """Run the steps."""
    hip, seed, limit = Hip(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chooser = random.Random(seed)  # noqa: S311
    model = Model(limit)
    granted = refused = most = 0
    for _ in range(STEPS):
        device = chooser.randrange(DEVICES)
        assert hip.set_device(device) == 0
        if chooser.random() < 0.6:
            fits = allocate(hip, model, device, choose_size(model, device, chooser))
            granted, refused = granted + fits, refused + (not fits)
        else:
            release(hip, model, chooser)
        if chooser.random() < 0.05:
            assert hip.free(UNKNOWN) != 0
        assert hip.info() == (model.left(device), limit)
        most = max(most, sum(map(len, model.held)))
    emit(granted=granted, refused=refused, most=most)


if __name__ == "__main__":
    main()
