// The kernel of tests/bench/kernels.c: keeps one block of threads busy for so many cycles, then writes to the memory that it was given.
extern "C" __global__ void spin(int *memory, long long cycles)
{
    long long start = clock64();
    while (clock64() - start < cycles)
        ;
    if (threadIdx.x == 0)
        *memory = 1;
}
