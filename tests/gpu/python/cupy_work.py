"""CuPy at work: kernels of our own, matrix products, reductions, sorting and FFT over several streams.

"pool" (CuPy's memory pool), "async" (its pool of stream-ordered memory), "raw" (cupy.cuda.set_allocator(None): every array is a
cudaMalloc and a cudaFree) or, with the path of cuplug's library in $ALLOCATOR_LIBRARY, "c" or "python" (cuplug by CFunctionAllocator
or PythonFunctionAllocator) is the one argument. Arrays die while kernels on their stream still run. Prints checksums of the results' bytes.
"""
import ctypes
import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import cupy
import numpy

ROUNDS = 60

SCRAMBLE = cupy.RawKernel(
    r"""
extern "C" __global__ void scramble(unsigned int *v, unsigned int n, unsigned int seed)
{
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned int x = v[i] ^ seed;
        for (int k = 0; k < 200; k++)
            x = x * 1664525u + 1013904223u;
        v[i] = x;
    }
}
""",
    "scramble",
)
SQUARE_DIFFERENCE = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "square_difference")


def show(name, array):
    print(f"{name}: {hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:32]}")


def integers(n, seed):
    values = cupy.arange(n, dtype=cupy.uint32)
    SCRAMBLE((64,), (256,), (values, numpy.uint32(n), numpy.uint32(seed)))
    return values


def one_round(i):
    """Temporaries of many sizes; returns one small result and lets everything else go."""
    n = 1000 + (i * 7919) % 300000
    a = integers(n, i).astype(cupy.float32) / numpy.float32(2**32)
    b = cupy.sort(a)
    distance = SQUARE_DIFFERENCE(a, b).sum()
    side = 64 + (i * 37) % 400
    m = (integers(side * side, i + 1) % 1000).astype(cupy.float32).reshape(side, side) / numpy.float32(1000)
    product = (m @ m.T) @ m
    spectrum = cupy.abs(cupy.fft.rfft(a[:4096] if n > 4096 else a))
    return cupy.stack([distance, product.trace(), product.max(), spectrum.max(), b.mean()])


def over_streams():
    streams = [cupy.cuda.Stream(non_blocking=i % 2 == 0) for i in range(4)]
    results = []
    for i in range(ROUNDS):
        with streams[i % len(streams)]:
            results.append(one_round(i))
    for stream in streams:
        stream.synchronize()
    show("rounds over four streams", cupy.stack(results))


def cuplug_allocator(kind):
    library = ctypes.CDLL(os.environ["ALLOCATOR_LIBRARY"])
    take, give = library.cuplug_cupy_malloc, library.cuplug_cupy_free
    take.argtypes, take.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_void_p
    give.argtypes, give.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int), None
    if kind == "c":
        addresses = (ctypes.cast(function, ctypes.c_void_p).value for function in (take, give))
        return cupy.cuda.memory.CFunctionAllocator(0, *addresses, library)
    return cupy.cuda.memory.PythonFunctionAllocator(
        lambda size, device: take(None, size, device) or 0, lambda pointer, device: give(None, pointer, device)
    )


def main():
    if sys.argv[1:] == ["raw"]:
        cupy.cuda.set_allocator(None)
    elif sys.argv[1:] == ["async"]:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif sys.argv[1:] in (["c"], ["python"]):
        cupy.cuda.set_allocator(cuplug_allocator(sys.argv[1]).malloc)
    elif sys.argv[1:] != ["pool"]:
        sys.exit("usage: cupy_work.py pool|async|raw|c|python")
    over_streams()
    show("kernel", integers(1 << 20, 5))
    show("product", cupy.stack([one_round(i) for i in range(10)]))
    show("running sum", cupy.cumsum(integers(100000, 9).astype(cupy.int64)))


if __name__ == "__main__":
    main()
