"""numba-cuda at work: kernels of our own, a tiled matrix product in shared memory and a reduction, over three
streams, with device arrays that die while their stream still works. Prints checksums of the results' bytes.
"""
import hashlib

import numpy

if not hasattr(numpy, "row_stack"):  # gone from numpy 2.5, which this numba-cuda does not know yet
    numpy.row_stack = numpy.vstack

import numba  # noqa: E402
from numba import cuda  # noqa: E402

ROUNDS, TILE = 60, 16


@cuda.jit
def scramble(values, seed):
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        x = (values[i] ^ seed) & 0xFFFFFFFF
        for _ in range(200):
            x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        values[i] = x


@cuda.jit
def multiply(a, b, out):
    """Integer matrix product by tiles: the order of the sums cannot change the result."""
    tile_a = cuda.shared.array((TILE, TILE), numba.int64)
    tile_b = cuda.shared.array((TILE, TILE), numba.int64)
    row, column = cuda.grid(2)
    y, x = cuda.threadIdx.x, cuda.threadIdx.y
    total = numba.int64(0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[row, start + x]
        tile_b[y, x] = b[start + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    out[row, column] = total


@cuda.jit
def fold(values, total):
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(total, 0, values[i] & 0xFFFF)


def show(name, array):
    print(f"{name}: {hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()[:32]}")


def one_round(i, stream, total):
    """Leaves its arrays to be freed as soon as Python lets go of them."""
    n = 1000 + (i * 7919) % 200000
    values = cuda.to_device(numpy.arange(n, dtype=numpy.int64), stream=stream)
    scramble[64, 128, stream](values, i)
    fold[64, 128, stream](values, total)
    side = TILE * (2 + i % 8)
    a = cuda.to_device(numpy.arange(side * side, dtype=numpy.int64).reshape(side, side) % 97, stream=stream)
    out = cuda.device_array((side, side), dtype=numpy.int64, stream=stream)
    multiply[(side // TILE, side // TILE), (TILE, TILE), stream](a, a, out)
    return out.copy_to_host(stream=stream) if i % 10 == 0 else None


def main():
    streams = [cuda.stream() for _ in range(3)]
    totals = [cuda.to_device(numpy.zeros(1, dtype=numpy.int64)) for _ in streams]
    products = [one_round(i, streams[i % 3], totals[i % 3]) for i in range(ROUNDS)]
    cuda.synchronize()
    for i, product in enumerate(products):
        if product is not None:
            show(f"product {i}", product)
    for i, total in enumerate(totals):
        print(f"stream {i}: {int(total.copy_to_host()[0])}")


if __name__ == "__main__":
    main()
