// A C++ program that frees device memory late: in the destructor of a global object, which was made before CUDA was used and so
// outlives the driver; in exit handlers registered before and after CUDA was first used; in the destructors of thread-local data and
// of a library. Prints nothing, ends with 0.
//
//     late_frees [MOMENT...]     which of global, before, after, thread, main-thread, library; each has 100 blocks, and those of the
//                                others are never freed
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" void free_in_destructor(void (*function)());  // late_library.c

namespace {
// Plain data, so that it is there whatever is destroyed first.
enum { GLOBAL, BEFORE, AFTER, THREAD, MAIN_THREAD, LIBRARY, MOMENTS, BLOCKS = 100 };
char const* const names[MOMENTS] = {"global", "before", "after", "thread", "main-thread", "library"};
void* pointers[MOMENTS][BLOCKS];
bool wanted[MOMENTS];

void free_all(int moment)
{
  for (void* pointer : pointers[moment])
    if (wanted[moment]) cudaFree(pointer);
}

struct frees_at_its_end {
  int moment;
  ~frees_at_its_end() { free_all(moment); }
};
frees_at_its_end global{GLOBAL};

void use_thread_local_data(int moment)
{
  static thread_local frees_at_its_end data{};
  data.moment = moment;
}
}  // namespace

int main(int argc, char** argv)
{
  for (int i = 1; i < argc; ++i)
    for (int m = 0; m < MOMENTS; ++m) wanted[m] |= std::strcmp(argv[i], names[m]) == 0;
  std::atexit([] { free_all(BEFORE); });
  free_in_destructor([] { free_all(LIBRARY); });
  for (auto& moment : pointers)
    for (auto& pointer : moment)
      if (cudaError_t error = cudaMalloc(&pointer, 3000)) {
        std::fprintf(stderr, "cudaMalloc: %s\n", cudaGetErrorName(error));
        std::_Exit(1);
      }
  std::atexit([] { free_all(AFTER); });
  use_thread_local_data(MAIN_THREAD);
  std::thread{use_thread_local_data, THREAD}.join();
  return 0;
}
