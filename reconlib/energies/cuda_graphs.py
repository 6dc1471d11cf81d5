"""CUDA graphs of functions of an image: all of a function's kernels are launched at once.

A small network's kernels take less time than launching them one by one from Python. A
:class:`torch.cuda.CUDAGraph` is what one call launched; replaying it reads the input from where it lay in
that call, and writes results to where they lay. So what is captured must launch the same kernels in every
call: no result may come to the host (``item``), nothing may be copied from the host, and tensors that it
keeps from call to call (weights, tables) must stay where they are as long as the graph lives. Gradients by
automatic differentiation are captured like anything else.

torch allows one capture at a time in a process, and asks for no other CUDA work meanwhile. Captures here wait
for each other; threads that share a device should take turns with it. One that does not is no harm to a
capture that is ``thread_local``: its allocations are told apart by their stream.

References
----------
"CUDA Graphs" in the notes on CUDA semantics of torch's documentation.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch
from torch import Tensor

MOST_PIXELS = 2**19
"""Images with more pixels, in all slices, are not captured: their kernels take longer than the launches, and
a graph keeps the memory of all intermediate results, about 1 kB per pixel of a local energy."""
WARM_UPS = 3
"""Calls before a capture, so that libraries have their plans and workspaces."""

_ONE_AT_A_TIME = threading.Lock()


class CudaGraphs:
    """Captures CUDA graphs; see the module's text."""

    def suits(self, image: Tensor, /) -> bool:
        """Whether to capture functions of such images: small ones on a CUDA device, on its default stream.

        On one stream, replays and what is done with their inputs and results are in order, whichever thread
        starts them. Threads are on the default stream unless they choose another one.
        """
        return (
            image.is_cuda
            and image.numel() <= MOST_PIXELS
            and torch.cuda.current_stream(image.device) == torch.cuda.default_stream(image.device)
        )

    def capture(
        self, function: Callable[[Tensor], tuple[Tensor, ...]], image: Tensor, /
    ) -> Callable[[], tuple[Tensor, ...]]:
        """Return what replays ``function(image)``, for what then is in ``image``'s memory.

        It returns the same tensors each time, with new content. The graph's memory is free when that function
        and these tensors are.

        Raises
        ------
        RuntimeError
            The function cannot be captured, or memory does not suffice.
        """
        device = image.device
        side, caller = _side_stream(device), torch.cuda.current_stream(device)
        with _ONE_AT_A_TIME, torch.cuda.device(device):
            side.wait_stream(caller)
            try:
                # also brings the caller's stream back where torch.cuda.graph fails to
                with torch.cuda.stream(side):
                    for _ in range(WARM_UPS):
                        function(image)
                    graph, outputs = _captured(function, image, side)
            finally:
                caller.wait_stream(side)

        def replay() -> tuple[Tensor, ...]:
            graph.replay()
            return outputs

        return replay


def _captured(
    function: Callable[[Tensor], tuple[Tensor, ...]], image: Tensor, stream: torch.cuda.Stream
) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            outputs = function(image)
    except BaseException:
        graph.reset()
        # A capture that cannot even be ended leaves its pool with the allocator, which then frees no memory.
        with suppress(RuntimeError):  # others have been ended
            torch._C._cuda_endAllocateToPool(image.device.index, pool)
            torch._C._cuda_releasePool(image.device.index, pool)
        raise
    return graph, outputs


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all captures on a device: libraries keep a workspace for every stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # missing in torch's stubs
