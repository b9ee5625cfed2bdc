"""The kubelet's device plugin API, version v1beta1; the `api_pb2*` modules are generated from `api.proto`."""
