"""The configuration of a Flow, and changes of it."""

from __future__ import annotations

from typing import Final

from dex.dexpb import dex_pb2 as pb

_REPLACED: Final = ("attribute_store_names", "worker_target")
"""Merged, a list would be appended to, and a pull target would keep the address that a push target had, or its mode."""


def apply(config: pb.FlowConfig, given: pb.FlowConfig) -> None:
    """Change the fields of a configuration that are given; each of them is replaced whole."""
    for name in _REPLACED:
        if given.HasField(name):
            config.ClearField(name)
    config.MergeFrom(given)
