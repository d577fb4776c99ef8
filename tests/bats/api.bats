# The public interface, cuplug.h: weak functions, so that a program runs with and without the library.

load helpers/load

TOLD="version at least 1: yes, before CUDA: none
trim before CUDA: not at work
backend: pool
allocations 1, of device 0 1, live bytes 20971520
frees 1, peak 20971520
all that was reserved came back: yes, reserved now 0
errors: yes yes yes yes
all names known: yes
trim in a capture: busy
pending error: cudaSuccess"

@test "a program that uses cuplug.h runs without the library, and with it hears the truth" {
  # Lost otherwise: programs that cannot start without cuplug, figures that are not those of the report.
  local variant
  for variant in shared static ptds; do
    without_shim "api.$variant"
    assert_equal "$status $output" "0 without cuplug"
    with_shim pool "api.$variant"
    assert_same "$variant" "$TOLD" "$output$stderr"
  done
}

@test "the figures are exact while threads are alive that have just counted, and at the end" {
  # Lost otherwise: a program's own limits and metrics, by what each thread has not told yet.
  local backend
  for backend in direct pool; do
    count "$backend" "$backend" thread_blocks.shared counted
    assert_line "allocations 808, frees 404, live blocks 404, live bytes 404000"
    assert_line "a peak of all that is live: yes"
  done
}

@test "an arena keeps its memory when it is trimmed; direct has nothing to give" {
  local backend
  for backend in arena:size=64M direct; do
    with_shim "$backend" api.shared
    assert_success
    assert_line "backend: ${backend%%:*}"
    assert_line "trim in a capture: busy"
  done
  assert_line "all that was reserved came back: yes, reserved now 0"
  with_shim arena:size=64M api.shared
  assert_line "all that was reserved came back: no, reserved now 67108864"
}

@test "from Python, by ctypes" {
  # Lost otherwise: what a notebook can see and do.
  needs_plain_build "Python has no sanitizer"
  needs_own_processor "Python is this machine's"
  run --separate-stderr env LD_LIBRARY_PATH="$DRIVER_PATH" LD_PRELOAD="$SHIM" CUPLUG_BACKEND=pool "$PYTHON" -c '
import ctypes, os
cuplug, runtime = ctypes.CDLL(None), ctypes.CDLL(next(n for n in ("libcudart.so.13", "libcudart.so")))
cuplug.cuplug_get_backend.restype = ctypes.c_char_p
cuplug.cuplug_trim.restype = ctypes.c_longlong
pointer, value = ctypes.c_void_p(), ctypes.c_longlong()
print(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(3 << 20)), runtime.cudaFree(pointer))
print(cuplug.cuplug_get_backend().decode(), cuplug.cuplug_get_stat(b"allocations", -1, ctypes.byref(value)), value.value)
print(cuplug.cuplug_trim(0) > 0)'
  assert_equal "$status $output $stderr" "0 0 0
pool 0 1
True "
}

@test "the header stands alone, in C99 and C++" {
  needs_own_processor "compiles for this machine"
  run "${CC:-cc}" -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c "$ROOT/shim/cuplug.h"
  assert_success
  run "${CC:-cc}" -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ "$ROOT/shim/cuplug.h"
  [[ $output != *"cc1plus"* ]] || skip "no C++ compiler"
  assert_success
}
