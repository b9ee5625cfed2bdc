"""The demonstration: the whole product on stand-ins for Kubernetes and for the GPU, told in the terminal.

It runs from a checkout only, as its GPUs, AMD's runtime and the example pods are those of the tests.
"""
