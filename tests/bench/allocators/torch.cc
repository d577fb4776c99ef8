/* PyTorch's caching allocator, called as its tensors call it. */
#include "../allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>
#include <exception>

namespace cache = c10::cuda::CUDACachingAllocator;

static void *alloc(size_t size, void *stream) {
    try {
        return stream ? cache::raw_alloc_with_stream(size, static_cast<cudaStream_t>(stream)) : cache::raw_alloc(size);
    } catch (const std::exception &error) {
        fprintf(stderr, "PyTorch: %s\n", error.what());
        return nullptr;
    }
}

static void release(void *block, size_t, void *) {
    cache::raw_delete(block);
}

static size_t reserved() {
    return cache::getDeviceStats(0).reserved_bytes[0].current;
}

static void trim() {
    cache::emptyCache();
}

__attribute__((constructor)) static void start() {
    cache::init(1);
}

const struct bench_allocator bench_allocators[] = {{"torch", alloc, release, reserved, trim}, {}};
