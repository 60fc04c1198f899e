"""How small values get from the host to a device without the host waiting for it.

An ordinary copy to CUDA waits until the stream has come to it, that is for the pass which is under way. One from memory
that the device reads by itself (pinned) is put into the queue; torch keeps that memory until it was read.
"""

from __future__ import annotations

import torch


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return values of the host on a device, which gets them when it comes to it."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
