"""The admission webhook: it refuses pods whose `amd.com/*` requests nobody can serve, and completes the others.

Every fault is named with its field; a pod without such requests passes untouched.
"""
