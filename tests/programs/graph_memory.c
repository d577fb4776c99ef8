/*
 * Memory that a stream-ordered allocation takes in a capture belongs to the graph: it is a node of it, and so is its free.
 * Launched a thousand times, the graph does the same each time and takes no more memory.
 */
#include "runtime.h"

#define LAUNCHES 1000
#define SIZE (1 * MIB)

static int nodes_of(cudaGraph_t graph, enum cudaGraphNodeType wanted) {
    cudaGraphNode_t nodes[16];
    enum cudaGraphNodeType type;
    size_t count = COUNT_OF(nodes);
    int found = 0;

    RT(cudaGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        RT(cudaGraphNodeGetType(nodes[i], &type));
        found += type == wanted;
    }
    return found;
}

static size_t free_now(void) {
    size_t free, total;

    RT(cudaMemGetInfo(&free, &total));
    return free;
}

int main(void) {
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    unsigned char *target, *scratch, first;
    cudaGraphExec_t executable;
    size_t wrong = 0, before = 0;
    cudaGraph_t graph;

    RT(cudaMalloc((void **)&target, SIZE));
    RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    RT(cudaMallocAsync((void **)&scratch, SIZE, stream));
    RT(cudaMemsetAsync(scratch, 0x6b, SIZE, stream));
    RT(cudaMemcpyAsync(target, scratch, SIZE, cudaMemcpyDeviceToDevice, stream));
    RT(cudaFreeAsync(scratch, stream));
    RT(cudaStreamEndCapture(stream, &graph));
    printf("nodes: %d that allocate, %d that free\n", nodes_of(graph, cudaGraphNodeTypeMemAlloc),
           nodes_of(graph, cudaGraphNodeTypeMemFree));
    RT(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        RT(cudaMemsetAsync(target, 0, SIZE, stream));
        RT(cudaGraphLaunch(executable, stream));
        RT(cudaMemcpyAsync(&first, target + SIZE - 1, 1, cudaMemcpyDeviceToHost, stream));
        RT(cudaStreamSynchronize(stream));
        wrong += first != 0x6b;
        if (i == 9)
            before = free_now();
    }
    printf("wrong launches: %zu, wrong bytes after the last: %zu\n", wrong, wrong_on_device(target, 0x6b, SIZE));
    printf("takes no more memory: %s\n", yes_no(!device_is_ours() || free_now() == before));
    RT(cudaGraphExecDestroy(executable));
    RT(cudaGraphDestroy(graph));
    RT(cudaFree(target));
    printf("expect allocations=1 frees=1 live_blocks=0 failed=0\n");
    return 0;
}
