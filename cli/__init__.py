"""The command `amd-vgpu`: one sub-command per service."""
