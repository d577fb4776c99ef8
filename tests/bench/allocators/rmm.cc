/* RMM's resources: pool, arena and async, each made at its first use with RMM's own defaults; the pool and the arena have the
 * bare driver behind them. */
#include "../allocator.h"

#include <rmm/aligned.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstdio>
#include <exception>

/* They are never destroyed: at the worker's end the driver may be gone before them. */
static rmm::mr::pool_memory_resource &pool() {
    static auto &resource = *new rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, size_t{64} << 20};
    return resource;
}

/* RMM's arena takes half of the free memory unless told: the other workers need some. */
static rmm::mr::arena_memory_resource &arena() {
    static auto &resource = *new rmm::mr::arena_memory_resource{rmm::mr::cuda_memory_resource{}, size_t{8} << 30};
    return resource;
}

static rmm::mr::cuda_async_memory_resource &async() {
    static auto &resource = *new rmm::mr::cuda_async_memory_resource{};
    return resource;
}

template <auto &(*resource)()> static void *alloc(size_t size, void *stream) {
    try {
        return resource().allocate(cuda::stream_ref{static_cast<cudaStream_t>(stream)}, size, rmm::CUDA_ALLOCATION_ALIGNMENT);
    } catch (const std::exception &error) {
        fprintf(stderr, "RMM: %s\n", error.what());
        return nullptr;
    }
}

template <auto &(*resource)()> static void release(void *block, size_t size, void *stream) {
    resource().deallocate(cuda::stream_ref{static_cast<cudaStream_t>(stream)}, block, size, rmm::CUDA_ALLOCATION_ALIGNMENT);
}

const struct bench_allocator bench_allocators[] = {
    {"rmm-pool", alloc<pool>, release<pool>, nullptr, nullptr},
    {"rmm-arena", alloc<arena>, release<arena>, nullptr, nullptr},
    {"rmm-async", alloc<async>, release<async>, nullptr, nullptr},
    {},
};
