# What the shim needs of its surroundings, and other things that stand between a program and the driver: further preloads, sanitizers, libraries that
# bind past us.

load helpers/load

GLIBC_FLOOR=2.34 # README.md states it

# highest_glibc LIBRARY: the newest version of the C library's symbols that it needs.
highest_glibc() {
  readelf --dyn-syms --wide "$1" | sed -nE 's/.*@(GLIBC_[A-Z0-9.]+) .*/\1/p' | sort -Vu | tail -1
}

# assert_glibc_floor LIBRARY
assert_glibc_floor() {
  local highest
  run readelf --version-info --dyn-syms --wide "$1"
  assert_success
  refute_output --partial GLIBC_PRIVATE
  highest=$(highest_glibc "$1")
  echo "# ${1#"$ROOT"/} needs $highest" >&3
  assert_equal "$(printf '%s\n' "$highest" "GLIBC_$GLIBC_FLOOR" | sort -V | tail -1)" "GLIBC_$GLIBC_FLOOR"
}

@test "the library needs no glibc newer than the stated one, and nothing private of it (C7)" {
  # Lost otherwise: every program, after an upgrade of the system or on an older one.
  needs_plain_build "the sanitizer needs more"
  assert_glibc_floor "$SHIM"
  grep -q "glibc $GLIBC_FLOOR" "$ROOT/README.md"
}

@test "each architecture binds its own versions of the C library (C6)" {
  # Lost otherwise: every program on the architecture that does not have them.
  needs_plain_build "the sanitizer brings its own"
  local first
  case $(readelf -h "$SHIM") in
  *AArch64*) first=GLIBC_2.17 ;;
  *X86-64*) first=GLIBC_2.2.5 ;;
  *) skip "neither x86-64 nor aarch64" ;;
  esac
  # The versions that it names in look-ups and those that it is linked to: from the architecture's first on.
  assert_equal "$(strings -a "$SHIM" | grep -oE '^GLIBC_2\.[0-9.]+$' | sort -Vu | head -1)" "$first"
}

@test "the program's own handle finds what is visible to the program without the shim, and what it finds is served" {
  # Lost otherwise: programs that ask this way whether there is a driver, and die in the answer.
  assert_like_bare_driver own_handle
  count pool pool own_handle
}

@test "a look-up in a library's constructor and the first one of another thread do not wait for each other" {
  # Lost otherwise: Python programs that import modules in threads, which hang when the first CUDA look-ups meet.
  local backend CUPLUG_TEST_TIMEOUT=20
  preload() { echo "$SHIM $PROGRAMS/slow_dlsym.so"; }
  needs_plain_build "the order of the preloads is fixed"
  for backend in $BACKENDS; do
    with_shim "$backend" SLOW_DLSYM=cuMemAllocManaged loader_lock "$PROGRAMS/constructor.so"
    assert_equal "$status $stderr" "0 "
    assert_output "found by the constructor: yes
found by the thread: yes"
  done
}

@test "other preloads, in any order" {
  # Lost otherwise: tracers and profilers beside the shim.
  needs_plain_build "the order of the preloads is fixed"
  local list program other=$PROGRAMS/slow_dlsym.so third=$PROGRAMS/next_second.so
  preload() { echo "$list"; }
  for list in "$other $SHIM" "$SHIM $other" "$third:$SHIM:$other" "$other  $SHIM $third" "$SHIM:/missing.so"; do
    for program in runtime_kinds.shared runtime_kinds.static driver_kinds.dlsym driver_kinds.getproc2; do
      rm -f "$BATS_TEST_TMPDIR"/stats.*
      with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "$program" malloc
      assert_equal "$list, $program: $status" "$list, $program: 0"
      assert_line "malloc: right"
      check_stats backends.pool.allocations=4 totals.frees=4 totals.live_blocks=0
    done
  done
  list="$other $SHIM"
  with_shim pool next_lookup
  assert_output "next tool: second"
}

@test "loaded twice: by the same name, as a copy, and opened by the program itself" {
  # Lost otherwise: programs started by a launcher that preloads it again.
  needs_plain_build "the order of the preloads is fixed"
  local copy=$BATS_TEST_TMPDIR/copy.so list program
  cp "$SHIM" "$copy"
  preload() { echo "$list"; }
  for list in "$SHIM $SHIM" "$SHIM $copy" "$copy:$PROGRAMS/slow_dlsym.so:$SHIM"; do
    for program in runtime_kinds.shared runtime_kinds.static driver_kinds.dlsym stress.shared; do
      with_shim pool "$program" "$([ $program = stress.shared ] && echo 20 || echo malloc)"
      assert_equal "$list, $program: $status $stderr" "$list, $program: 0 "
    done
  done
  list=$SHIM
  assert_says "opened 2" opens "$SHIM" "$copy"
}

# --- RTLD_DEEPBIND (C18)

@test "a library opened with RTLD_DEEPBIND frees the program's memory and the reverse: the driver's own memory, one warning (C18)" {
  # Lost otherwise: the program's data, when the driver frees a segment under all the blocks in it.
  local expected backend
  without_shim deepbind.link "$PROGRAMS/bypass.so"
  skip_if_said
  expected=$output
  for backend in ${BACKENDS//direct/}; do
    with_shim "$backend" deepbind.link "$PROGRAMS/bypass.so"
    assert_equal "$backend: $status" "$backend: 0"
    assert_same "$backend: output" "$expected" "$output"
    assert_equal "$(wc -l <<<"$stderr")" 1
    [[ $stderr == "cuplug: $PROGRAMS/bypass.so was opened with RTLD_DEEPBIND and bypasses cuplug: new device memory is the driver's own"* ]]
  done
  with_shim direct deepbind.link "$PROGRAMS/bypass.so"
  assert_same "direct" "$expected" "$output$stderr"
}

@test "CUPLUG_DEEPBIND=strip: the same, served by the backend, without a word (C18)" {
  local expected backend BACKENDS="direct pool arena:size=1G managed:max=1G" # an allocator library may keep what it gets back
  without_shim deepbind.link "$PROGRAMS/bypass.so"
  skip_if_said
  expected=$output
  for backend in $BACKENDS; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_DEEPBIND=strip CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" deepbind.link "$PROGRAMS/bypass.so"
    assert_same "$backend, strip" "$expected" "$output$stderr"
    check_stats "backends.${backend%%:*}.allocations=7" totals.live_blocks=0
  done
}

@test "a program without CUDA that opens libraries with RTLD_DEEPBIND is left alone (C18)" {
  needs_plain_build "sanitizers forbid the flag"
  assert_says "opened 1" opens deep "$PROGRAMS/next_second.so"
}

@test "NVIDIA's own libraries, which open each other with RTLD_DEEPBIND, do not count (C18)" {
  # Lost otherwise: the pool, as soon as PyTorch's profiler is used.
  cp "$PROGRAMS/bypass.so" "$BATS_TEST_TMPDIR/libnvperf_host.so"
  assert_like_bare_driver free_unknown.link "$BATS_TEST_TMPDIR/libnvperf_host.so"
}

@test "a runtime that was opened with RTLD_DEEPBIND is not served before it: its own cudaFree frees all that it gave (C18)" {
  assert_like_bare_driver CUPLUG_DEEPBIND=ignore deepbind_runtime.link "$(basename "$(readlink -f "$DRIVER_PATH"/libcudart.so.1[3-9] | head -1)")" \
    "$PROGRAMS/plugin_shared.so"
  assert_line "3: allocated 0, freed by the runtime itself 0"
}

# --- sanitizers (C21)

# compile_cuda OUTPUT COMPILER FLAG…: runtime_kinds with the shared runtime.
compile_cuda() {
  "${@:2}" -std=gnu11 -D_GNU_SOURCE -isystem "${CUDA_INC:?}" -I"$ROOT/tests/programs" -o "$1" "$ROOT/tests/programs/runtime_kinds.c" \
    "$BUILD"/sim/libcudart.so.13 -lpthread 2>/dev/null
}

# assert_asan_served PROGRAM: the memory is right and served, and an error is still reported, once.
assert_asan_served() {
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "$1" malloc
  assert_equal "$status $stderr" "0 "
  assert_line "malloc: right"
  check_stats backends.pool.allocations=4 totals.live_blocks=0
}

@test "clang's AddressSanitizer: the program runs as it is (C21)" {
  needs_sim "links the simulated runtime"
  needs_plain_build "brings its own runtime"
  needs_own_processor "the compilers are this machine's"
  compile_cuda "$BATS_TEST_TMPDIR/program" clang -fsanitize=address || skip "no clang with AddressSanitizer"
  assert_asan_served "$BATS_TEST_TMPDIR/program"
}

@test "gcc's AddressSanitizer: libasan first, then the shim, also by cuplug run (C21)" {
  needs_sim "links the simulated runtime"
  needs_plain_build "brings its own runtime"
  needs_own_processor "the compilers are this machine's"
  local asan program=$BATS_TEST_TMPDIR/program
  compile_cuda "$program" gcc -fsanitize=address || skip "no gcc with AddressSanitizer"
  asan=$(gcc -print-file-name=libasan.so)
  preload() { echo "$asan:$SHIM"; }
  assert_asan_served "$program"
  rm "$BATS_TEST_TMPDIR"/stats.*
  preload() { echo "$asan"; }
  with_shim unset CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "$BUILD/cuplug" run -b pool -- "$program" malloc
  assert_equal "$status $stderr" "0 "
  check_stats backends.pool.allocations=4 totals.live_blocks=0
  # The program's own errors are still found, and reported once.
  gcc -fsanitize=address -o "$program" -x c - <<<'#include <stdlib.h>
int main(void) { volatile char *block = malloc(10); free((void *)block); return block[3]; }'
  with_shim unset ASAN_OPTIONS=log_path=stderr "$BUILD/cuplug" run -b pool -- "$program"
  assert_equal "$(grep -c 'ERROR: AddressSanitizer: heap-use-after-free' <<<"$stderr")" 1
}

# --- why nothing was intercepted (C22)

@test "CUPLUG_LOG=info: a process without an intercepted allocation says why; by default it says nothing (C22)" {
  # Lost otherwise: the evening of a user who sees no difference.
  local silent
  for silent in "" CUPLUG_LOG=warn CUPLUG_LOG=error; do
    # shellcheck disable=SC2086
    with_shim pool $silent opens
    assert_equal "$silent $status $output $stderr" "$silent 0 opened 0 "
    # shellcheck disable=SC2086
    with_shim pool $silent opens libcuda.so.1
    assert_equal "$silent $status $output $stderr" "$silent 0 opened 1 "
  done
  with_shim pool CUPLUG_LOG=info opens
  assert_equal "$status $output $stderr" "0 opened 0 cuplug: no allocation intercepted: the process has not loaded libcuda.so.1"
  with_shim pool CUPLUG_LOG=info opens libcuda.so.1
  [[ $stderr == "cuplug: no allocation intercepted: libcuda.so.1 is loaded from "*"/libcuda.so.1, but no call or look-up came by here (hooked: linked calls, dlsym, cuGetProcAddress,"* ]]
  with_shim pool CUPLUG_LOG=info runtime_kinds.shared malloc
  assert_equal "$status" 0
  [[ $stderr != *"no allocation intercepted"* ]]
  with_shim pool CUPLUG_LOG=info CUPLUG_DISABLE=1 runtime_kinds.shared malloc
  assert_equal "$stderr" "cuplug: no allocation intercepted: CUPLUG_DISABLE is set"
}
