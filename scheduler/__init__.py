"""The scheduler extender: kube-scheduler asks it which nodes have room on their GPUs, and lets it bind.

`filter` and `prioritize` answer from watched state; `bind` decides again from fresh state, under the node lock.
"""
