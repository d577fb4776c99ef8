"""cuplug as PyTorch's allocator, if $ALLOCATOR_LIBRARY names its library: all of its functions set."""
import ctypes
import os

import torch


def cuplug_allocator():
    path = os.environ.get("ALLOCATOR_LIBRARY")
    if not path:
        return None
    library = ctypes.CDLL(path)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "cuplug_torch_malloc", "cuplug_torch_free")
    for setter, function in (
        ("set_init_fn", "init"),
        ("set_reset_fn", "reset"),
        ("set_memory_fraction_fn", "memory_fraction"),
        ("set_base_alloc_fn", "base_alloc"),
        ("set_record_stream_fn", "record_stream"),
        ("set_begin_allocate_to_pool", "begin_allocate_to_pool"),
        ("set_end_allocate_to_pool_fn", "end_allocate_to_pool"),
        ("set_release_pool", "release_pool"),
    ):
        address = ctypes.cast(getattr(library, f"cuplug_torch_{function}"), ctypes.c_void_p).value
        getattr(allocator._allocator, setter)(address)
    return allocator
