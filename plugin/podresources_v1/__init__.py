"""Generated from `api.proto`: the kubelet's PodResources API, version v1."""
