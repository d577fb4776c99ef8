// pitched.cu — cudaMallocPitch and cudaMalloc3D: the pitch the program is told, every element written by a kernel
// and read back through 2-D and 3-D copies. Prints pitches and checksums, which must not depend on the allocator.

#include "check.cuh"

#include <vector>

__global__ static void fill(unsigned char *base, size_t pitch, size_t width, size_t height, size_t depth) {
    size_t row = blockIdx.x, slice = blockIdx.y;
    for (size_t x = threadIdx.x; x < width; x += blockDim.x)
        base[(slice * height + row) * pitch + x] = (unsigned char)(x * 7 + row * 31 + slice * 127);
}

static uint64_t checksum(const std::vector<unsigned char> &bytes) {
    uint64_t sum = 1469598103934665603ull;
    for (unsigned char byte : bytes)
        sum = (sum ^ byte) * 1099511628211ull;
    return sum;
}

static void plane(size_t width, size_t height) {
    void *p;
    size_t pitch;
    CHECK(cudaMallocPitch(&p, &pitch, width, height));
    fill<<<dim3((unsigned)height, 1), 128>>>((unsigned char *)p, pitch, width, height, 1);
    CHECK(cudaGetLastError());
    std::vector<unsigned char> host(width * height);
    CHECK(cudaMemcpy2D(host.data(), width, p, pitch, width, height, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(p));
    printf("pitch %zux%zu: %zu %016llx\n", width, height, pitch, (unsigned long long)checksum(host));
}

static void volume(size_t width, size_t height, size_t depth) {
    cudaPitchedPtr p;
    CHECK(cudaMalloc3D(&p, make_cudaExtent(width, height, depth)));
    fill<<<dim3((unsigned)height, (unsigned)depth), 128>>>((unsigned char *)p.ptr, p.pitch, width, height, depth);
    CHECK(cudaGetLastError());
    std::vector<unsigned char> host(width * height * depth);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = p;
    copy.dstPtr = make_cudaPitchedPtr(host.data(), width, width, height);
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    CHECK(cudaFree(p.ptr));
    printf("3D %zux%zux%zu: %zu %zu %zu %016llx\n", width, height, depth, p.pitch, p.xsize, p.ysize,
           (unsigned long long)checksum(host));
}

int main() {
    static const size_t widths[] = {1, 100, 511, 512, 513, 4096, 10001};
    for (int again = 0; again < 20; again++) {
        for (size_t width : widths) {
            plane(width, 1);
            plane(width, 257);
            volume(width, 17, 5);
        }
    }
    volume(100, 7, 3);
    return 0;
}
