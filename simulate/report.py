"""What came of simulations, as JSON and as tables."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from simulate.engine import Refused, Result

_REASONS_SHOWN: Final = 8
_NAMES_SHOWN: Final = 3
_LABEL_WIDTH: Final = 44

_ROWS: Final = (
    ("pods placed", "placed", "{:.0f}"),
    ("  of which waited", "waited", "{:.0f}"),
    ("  seconds waited, mean of these", "secondsWaitedMean", "{:.1f}"),
    ("  seconds waited, at most", "secondsWaitedMost", "{:.1f}"),
    ("pods refused or left waiting", "refused", "{:.0f}"),
    ("compute units taken, mean", "cuUtilisation", "{:.1%}"),
    ("compute units taken, at most", "cuUtilisationPeak", "{:.1%}"),
    ("memory taken, mean", "memoryUtilisation", "{:.1%}"),
    ("memory taken, at most", "memoryUtilisationPeak", "{:.1%}"),
    ("GPUs that nobody shares, mean", "wholeGpusFree", "{:.1%}"),
    ("free compute units on shared GPUs, mean", "fragmentation", "{:.1%}"),
    ("work lost to uneven XCCs, mean of shares", "xccImbalanceMean", "{:.2%}"),
    ("work lost to uneven XCCs, at most", "xccImbalanceMost", "{:.2%}"),
)


def name_of(result: Result) -> str:
    """Return how a result's policies are written: `binpack`, or `spread/binpack` for nodes and GPUs."""
    node, gpu = result.policies.node.value, result.policies.gpu.value
    return node if node == gpu else f"{node}/{gpu}"


def figures(result: Result) -> dict[str, float]:
    """Return the numbers of a result; shares are from 0 to 1."""
    waits = [one.waited for one in result.placed if one.waited > 0]
    return {
        "placed": len(result.placed),
        "waited": len(waits),
        "secondsWaitedMean": statistics.fmean(waits) if waits else 0.0,
        "secondsWaitedMost": max(waits, default=0.0),
        "refused": len(result.refused),
        **result.packing.figures(),
        "xccImbalanceMean": statistics.fmean(result.imbalances) if result.imbalances else 0.0,
        "xccImbalanceMost": max(result.imbalances, default=0.0),
    }


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return everything, by policy."""
    return {
        "policies": {
            name_of(result): {
                "figures": figures(result),
                "withoutGpus": result.without_gpus,
                "placements": [
                    {
                        "pod": one.pod,
                        "node": one.node,
                        "at": one.at,
                        "waited": one.waited,
                        "annotations": one.annotations,
                    }
                    for one in result.placed
                ],
                "refusals": [
                    {"pod": one.pod, "message": one.message, "reasons": one.reasons} for one in result.refused
                ],
            }
            for result in results
        }
    }


def as_text(results: Sequence[Result]) -> str:
    """Return the figures side by side, and why pods found no place."""
    values = [figures(result) for result in results]
    names = [name_of(result) for result in results]
    width = max(12, *(len(name) + 2 for name in names))
    lines = ["".join([" " * _LABEL_WIDTH, *(name.rjust(width) for name in names)])]
    for label, key, form in _ROWS:
        lines.append("".join([label.ljust(_LABEL_WIDTH), *(form.format(one[key]).rjust(width) for one in values)]))
    for result, name in zip(results, names, strict=True):
        lines += _refusals(result.refused, name)
    return "\n".join(lines)


def _refusals(refused: Sequence[Refused], policy: str) -> Iterator[str]:
    words: dict[str, list[str]] = {}
    for one in refused:
        words.setdefault(one.message or fits_nowhere(one), []).append(one.pod)
    if not words:
        return
    yield f"\nWhy pods found no place under {policy}"
    common = Counter({text: len(pods) for text, pods in words.items()}).most_common()
    for text, count in common[:_REASONS_SHOWN]:
        pods = words[text]
        more = f" and {count - _NAMES_SHOWN} more" if count > _NAMES_SHOWN else ""
        yield f"  {', '.join(pods[:_NAMES_SHOWN])}{more}: {text}"
    if len(common) > _REASONS_SHOWN:
        rest = sum(count for _, count in common[_REASONS_SHOWN:])
        yield f"  {rest} more pods for {len(common) - _REASONS_SHOWN} other reasons: all of them with --output json"


def fits_nowhere(refused: Refused) -> str:
    """Return the reasons of a pod that fits nowhere, as kube-scheduler words them in its events."""
    total = sum(refused.reasons.values())
    parts = sorted(f"{count} {reason}" for reason, count in refused.reasons.items())
    return f"0/{total} nodes are available: {', '.join(parts)}."
