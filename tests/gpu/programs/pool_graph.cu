// pool_graph.cu — memory the program asks of special places: a memory pool of its own, allocation nodes of a
// captured graph, and a cudaMalloc inside a relaxed capture; ordinary allocations go on around all of them.
// Prints sums and the graph's node counts: the graph must own what was allocated in it.

#include "check.cuh"

enum { N = 100000, REPLAYS = 100 };

__global__ static void fill(uint32_t *v, uint32_t seed) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x)
        v[i] = (seed + i) * 2654435761u;
}

__global__ static void fold(const uint32_t *v, unsigned long long *sum) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x)
        atomicAdd(sum, (unsigned long long)v[i]);
}

static void work(uint32_t *v, uint32_t seed, unsigned long long *sum, cudaStream_t stream) {
    fill<<<64, 256, 0, stream>>>(v, seed);
    fold<<<64, 256, 0, stream>>>(v, sum);
    CHECK(cudaGetLastError());
}

static void own_pool(cudaStream_t stream, unsigned long long *sum) {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t *v;
        CHECK(cudaMallocFromPoolAsync(&v, N * sizeof *v, pool, stream));
        work(v, i, sum, stream);
        CHECK(cudaFreeAsync(v, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
}

static void print_nodes(cudaGraph_t graph) {
    cudaGraphNode_t nodes[16];
    size_t count = 16;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    int allocs = 0, frees = 0, kernels = 0;
    for (size_t i = 0; i < count; i++) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        allocs += type == cudaGraphNodeTypeMemAlloc;
        frees += type == cudaGraphNodeTypeMemFree;
        kernels += type == cudaGraphNodeTypeKernel;
    }
    printf("nodes: %zu, allocations %d, frees %d, kernels %d\n", count, allocs, frees, kernels);
}

static void replay(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < REPLAYS; i++) {
        void *other;
        CHECK(cudaMalloc(&other, 1000u * (1 + (unsigned)i)));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaFree(other));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void graph_memory(cudaStream_t stream, unsigned long long *sum) {
    cudaGraph_t graph;
    uint32_t *v;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&v, N * sizeof *v, stream));
    work(v, 7, sum, stream);
    CHECK(cudaFreeAsync(v, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    print_nodes(graph);
    replay(graph, stream);
}

static void malloc_in_relaxed_capture(cudaStream_t stream, unsigned long long *sum) {
    cudaGraph_t graph;
    uint32_t *v;
    void *passing;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMalloc(&v, N * sizeof *v));
    CHECK(cudaMalloc(&passing, 5000));
    work(v, 11, sum, stream);
    CHECK(cudaFree(passing));
    CHECK(cudaStreamEndCapture(stream, &graph));
    print_nodes(graph);
    replay(graph, stream);
    CHECK(cudaFree(v));
}

int main() {
    cudaStream_t stream;
    unsigned long long *sum, result;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&sum, sizeof *sum));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaDeviceSynchronize());

    static void (*const parts[])(cudaStream_t, unsigned long long *) = {own_pool, graph_memory, malloc_in_relaxed_capture};
    for (auto part : parts) {
        part(stream, sum);
        CHECK(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
        printf("sum %016llx\n", result);
    }
    CHECK(cudaFree(sum));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
