/*
 * The kinds of device memory, the ways to free it, and the work that uses it.
 */
#include "conform.h"

const char *const kind_name[KINDS] = {"cudaMalloc",      "cudaMallocPitch",         "cudaMalloc3D",   "cudaMallocManaged",
                                      "cudaMallocAsync", "cudaMallocFromPoolAsync", "graph",          "cuMemAlloc",
                                      "cuMemAllocPitch", "cuMemAllocManaged",       "cuMemAllocAsync"};
const char *const way_name[WAYS] = {"cudaFree", "cudaFreeAsync", "cuMemFree", "cuMemFreeAsync"};

cudaStream_t stream, second;
cudaMemPool_t own_pool;

void start(void) {
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {.type = cudaMemLocationTypeDevice}};
    NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NEED(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    NEED(cudaMemPoolCreate(&own_pool, &properties));
}

/* Memory of a graph node, left allocated by the launch. The graphs stay: destroying them early is another rule. */
static cudaError_t take_in_graph(void **p, size_t size) {
    struct cudaMemAllocNodeParams parameters = {
        .poolProps = {.allocType = cudaMemAllocationTypePinned, .location = {.type = cudaMemLocationTypeDevice}},
        .bytesize = size};
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t node;
    cudaError_t error = cudaGraphCreate(&graph, 0);
    if (error == cudaSuccess)
        error = cudaGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters);
    if (error != cudaSuccess)
        return error;
    error = cudaGraphInstantiate(&executable, graph, 0);
    if (error == cudaSuccess)
        error = cudaGraphLaunch(executable, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        *p = parameters.dptr;
    return error;
}

struct outcome take(enum kind kind, void **p, size_t size) {
    size_t pitch;
    struct cudaPitchedPtr pitched = {.ptr = *p};
    struct outcome outcome = {.driver = kind >= DRIVER};
    switch (kind) {
    case MALLOC:
        outcome.code = (int)cudaMalloc(p, size);
        break;
    case PITCH:
        outcome.code = (int)cudaMallocPitch(p, &pitch, size, 1);
        break;
    case THREE_D:
        outcome.code = (int)cudaMalloc3D(&pitched, (struct cudaExtent){size, 1, 1});
        *p = pitched.ptr;
        break;
    case MANAGED:
        outcome.code = (int)cudaMallocManaged(p, size, cudaMemAttachGlobal);
        break;
    case ASYNC:
        outcome.code = (int)cudaMallocAsync(p, size, stream);
        break;
    case FROM_POOL:
        outcome.code = (int)cudaMallocFromPoolAsync(p, size, own_pool, stream);
        break;
    case GRAPH:
        outcome.code = (int)take_in_graph(p, size);
        break;
    case DRIVER:
        outcome.code = (int)cuMemAlloc((CUdeviceptr *)p, size);
        break;
    case DRIVER_PITCH:
        outcome.code = (int)cuMemAllocPitch((CUdeviceptr *)p, &pitch, size, 1, 4);
        break;
    case DRIVER_MANAGED:
        outcome.code = (int)cuMemAllocManaged((CUdeviceptr *)p, size, CU_MEM_ATTACH_GLOBAL);
        break;
    default:
        outcome.code = (int)cuMemAllocAsync((CUdeviceptr *)p, size, stream);
    }
    return outcome;
}

struct outcome give(enum way way, void *p) {
    switch (way) {
    case FREE:
        return (struct outcome){false, (int)cudaFree(p)};
    case FREE_ASYNC:
        return (struct outcome){false, (int)cudaFreeAsync(p, stream)};
    case MEM_FREE:
        return (struct outcome){true, (int)cuMemFree((CUdeviceptr)p)};
    default:
        return (struct outcome){true, (int)cuMemFreeAsync((CUdeviceptr)p, stream)};
    }
}

void say_outcome(struct outcome outcome) {
    if (outcome.driver)
        say_cu((CUresult)outcome.code);
    else
        say_rt((cudaError_t)outcome.code);
}

bool worked(struct outcome outcome) {
    return outcome.code == 0;
}

void *memory(enum kind kind, size_t size) {
    void *p = NULL;
    struct outcome outcome = take(kind, &p, size);
    if (outcome.driver)
        need_driver((CUresult)outcome.code, kind_name[kind]);
    else
        need((cudaError_t)outcome.code, kind_name[kind]);
    NEED(cudaStreamSynchronize(stream));
    return p;
}

void drop(void *p) {
    cudaFree(p);
    cudaGetLastError();
}

void map(struct mapping *m) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granule;
    NEED_CU(cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    m->size = 2 * granule;
    NEED_CU(cuMemCreate(&m->handle, m->size, &properties, 0));
    NEED_CU(cuMemAddressReserve(&m->at, m->size, 0, 0, 0));
    NEED_CU(cuMemMap(m->at, m->size, 0, m->handle, 0));
    NEED_CU(cuMemSetAccess(m->at, m->size, &access, 1));
}

void unmap(struct mapping *m) {
    NEED_CU(cuMemUnmap(m->at, m->size));
    NEED_CU(cuMemRelease(m->handle));
    NEED_CU(cuMemAddressFree(m->at, m->size));
}

static void CUDART_CB sleep_here(void *ms) {
    sleep_ms((int)(intptr_t)ms);
}

void occupy(cudaStream_t on, int ms) {
    NEED(cudaLaunchHostFunc(on, sleep_here, (void *)(intptr_t)ms));
}

void set_flag(int *flag) {
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE); /* pairs with raised() */
}

bool raised(int *flag) {
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0;
}

bool holds(const void *device, int value, size_t size) {
    unsigned char *copy = calloc(1, size);
    bool right = cudaDeviceSynchronize() == cudaSuccess &&
                 cudaMemcpy(copy, device, size, cudaMemcpyDeviceToHost) == cudaSuccess && wrong_bytes(copy, value, size) == 0;
    free(copy);
    cudaGetLastError();
    return right;
}
