// thrower.cc: an allocator library that throws, as RMM's does when it has no more memory, and says what C++ thinks of it
// afterwards.
#include <cuda.h>

#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

namespace {
struct counted : std::runtime_error {
  static int alive;
  counted() : std::runtime_error("counted") { ++alive; }
  counted(counted const& other) : std::runtime_error(other) { ++alive; }
  ~counted() override { --alive; }
};
int counted::alive;

// Like a lock that the library holds: an exception must let it go on its way out.
struct held {
  static int count;
  held() { ++count; }
  ~held() { --count; }
};
int held::count;
int calls;
}  // namespace

extern "C" void* allocate(size_t size, int, CUstream) {
  held lock;
  CUdeviceptr pointer = 0;
  if (++calls == 3) throw counted{};
  if (calls == 4)
    std::fprintf(stderr, "held %d, in flight %d, alive %d\n", held::count - 1, std::uncaught_exceptions(), counted::alive);
  if (size > (size_t{1} << 30) || cuMemAlloc(&pointer, size) != CUDA_SUCCESS) throw std::bad_alloc{};
  return reinterpret_cast<void*>(pointer);
}

extern "C" void deallocate(void* pointer, size_t, int, CUstream) {
  held lock;
  cuMemFree(reinterpret_cast<CUdeviceptr>(pointer));
  if (calls == 5) throw 1;
}
