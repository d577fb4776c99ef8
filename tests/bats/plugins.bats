# Allocator libraries: found, opened or refused with the loader's reason; told exactly what each allocation had; never believed blindly.

load helpers/load

# refused SPEC REASON: one line that names the variable, the value and the reason; the program as without cuplug, served by the driver.
refused() {
  local spec=$1 reason=$2
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim unset CUPLUG_BACKEND="$spec" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" runtime_kinds.shared malloc
  assert_equal "$spec: status $status, $(wc -l <<<"$stderr") line" "$spec: status 0, 1 line"
  assert_line "malloc: right"
  [[ $stderr == "cuplug: CUPLUG_BACKEND=$spec: "*"$reason"*"; using direct" ]] || fail "$spec: $stderr"
  check_stats totals.allocations=4 totals.frees=4 backends.direct.allocations=4
  with_shim unset CUPLUG_STRICT=1 CUPLUG_BACKEND="$spec" runtime_kinds.shared malloc
  [ "$status" != 0 ] || fail "$spec: the program ran in spite of CUPLUG_STRICT=1"
  [[ $(head -n 1 <<<"$stderr") == "cuplug: CUPLUG_BACKEND=$spec: "*"$reason"*"; allocations will fail" ]] || fail "$spec: $stderr"
}

# served SPEC [VAR=VALUE…]: silently, by the plugin.
served() {
  local spec=$1
  shift
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim unset CUPLUG_BACKEND="$spec" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "$@" runtime_kinds.shared malloc
  assert_equal "$spec: $status $stderr" "$spec: 0 "
  check_stats backends.plugin.allocations=4 backends.plugin.frees=4 totals.allocations=4
}

@test "a library that cannot be opened: one line with the loader's reason, and the driver serves (C108)" {
  # Lost otherwise: hours, in search of why a library does nothing; or the program, by a half-opened one.
  local narrow=$BATS_TEST_TMPDIR/narrow.so
  refused /missing/alloc.so "No such file or directory"
  refused ./missing.so "No such file or directory"
  refused missing.so "./ in front means the working directory"
  refused "$BATS_TEST_TMPDIR/" "Is a directory"
  refused /dev/null "file too short"
  cp "$ALLOCATORS/example.so" "$narrow"
  printf '\x01' | dd of="$narrow" bs=1 seek=4 conv=notrunc status=none # ELFCLASS32
  refused "$narrow" "wrong ELF class: ELFCLASS32"
  refused "$ALLOCATORS/needs.so" "libgone.so: cannot open shared object file"
}

@test "a library without the functions, or of another version of the interface (C108)" {
  refused "$ALLOCATORS/plain.so:alloc=nothing,free=my_free" "undefined symbol: nothing"
  refused "$ALLOCATORS/plain.so:alloc=my_malloc,free=nothing" "undefined symbol: nothing"
  refused "$ALLOCATORS/eager.so" "it exports none of cuplug_backend_open, my_malloc and my_free"
  refused "$ALLOCATORS/plain.so:aloc=my_malloc,free=my_free" "not all are options of a library with a pair of functions (alloc, free,"
  refused "$ALLOCATORS/other_abi.so" "it is for version 7 of the interface, this cuplug has version 1"
  refused "$ALLOCATORS/small_table.so" "its table says it has 20 bytes"
  refused "$ALLOCATORS/example.so:junk" "its open failed (CUDA error 1)"
  refused "$SHIM" "that is cuplug itself"
}

@test "paths with blanks and colons, relative ones, bare names, versions, options (C108)" {
  local folder="$BATS_TEST_TMPDIR/a b:c=d,e.so:f" ways=$PROGRAMS/runtime_kinds.shared
  mkdir -p "$folder"
  cp "$ALLOCATORS/example.so" "$folder/my alloc.so"
  cp "$ALLOCATORS/plain.so" "$folder/lib:plain.so.1"
  served "$folder/my alloc.so"
  served "$folder/my alloc.so:keep=1"
  served "$folder/lib:plain.so.1"
  served "$folder/lib:plain.so.1:alloc=my_malloc,free=my_free"
  cd "$folder"
  with_shim unset CUPLUG_BACKEND="./my alloc.so:keep=1" CUPLUG_REPORT=1 "$ways" malloc
  assert_success
  [[ $stderr == *"cuplug: plugin "* ]] || fail "$stderr"
  cp "my alloc.so" bare.so
  cd / # an empty entry of LD_LIBRARY_PATH means the working directory
  refused bare.so "./ in front means the working directory"
  mkdir "$BATS_TEST_TMPDIR/plain"
  cp "$folder/bare.so" "$BATS_TEST_TMPDIR/plain"
  export LD_LIBRARY_PATH=$BATS_TEST_TMPDIR/plain
  served bare.so
  printf 'backend = %s   # a library\n' "$folder/my alloc.so:keep=1" >"$BATS_TEST_TMPDIR/options"
  unset LD_LIBRARY_PATH
  with_shim unset CUPLUG_CONFIG="$BATS_TEST_TMPDIR/options" CUPLUG_REPORT=1 "$ways" malloc
  [[ $stderr == *"cuplug: plugin "* ]] || fail "$stderr"
}

@test "older frees take fewer arguments" {
  local way
  local kind
  for way in ptr ptr+size ptr+size+device ptr+stream ptr+size+stream; do
    served "$ALLOCATORS/eager.so:alloc=eager_alloc,free=eager_free_${way//+/_},free_args=$way"
    for kind in async malloc_freed_async async_freed_sync; do
      with_shim "$ALLOCATORS/eager.so:alloc=eager_alloc,free=eager_free_${way//+/_},free_args=$way" runtime_kinds.shared "$kind"
      assert_equal "$way $kind: $status $stderr" "$way $kind: 0 "
    done
  done
  served "$ALLOCATORS/eager.so:alloc=eager_alloc,free=eager_free,free_args=ptr+size+device+stream"
}

# checked SPEC: what the checking library says of 100,000 random operations.
checked() {
  local settings=SIMCUDA_DEVICES=2 said=$BATS_TEST_TMPDIR/checker
  [ "$CUPLUG_TEST_DRIVER" = sim ] || settings=
  rm -f "$said"
  count "$1" "$1" ${settings:+$settings} CHECKER_OUT="$said" random_operations.shared 100000
  # The process may end before the last frees reach the library; each one that does is right.
  awk '!/wrong/ && match($0, /^allocations 1000[0-9]+, in stream order [1-9][0-9]+, their stream gone [1-9][0-9]+, frees [0-9]+$/) && $NF >= 100000 { good = 1 } END { exit !good }' \
    "$said" || fail "$1: $(cat "$said")"
}

@test "100,000 random operations: each free gets what its allocation had, a plugin's (C31)" {
  # Lost otherwise: whatever a library keeps by size, device or stream.
  checked "$ALLOCATORS/checker.so"
}

@test "100,000 random operations: each free gets what its allocation had, a pair of functions' (C31)" {
  checked "$ALLOCATORS/checker.so:alloc=checker_alloc,free=checker_free"
  checked "$ALLOCATORS/checker.so:alloc=checker_alloc,free=checker_free,reuse=now"
}

# faulty FAULT LINE COUNTED…: the program is right all the same, and the fault was named in one line.
faulty() {
  local fault=$1 line=$2
  shift 2
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim "$ALLOCATORS/faulty.so" FAULTY="$fault" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" plugin_faults.shared
  assert_equal "$fault: $status" "$fault: 0"
  [[ $stderr =~ ^"cuplug: $ALLOCATORS/faulty.so: "$line$ ]] && [ "$(wc -l <<<"$stderr")" = 1 ] || fail "$fault: $stderr"
  refute_output --regexp "wrong bytes [0-9]: [1-9]"
  check_stats "$@"
}

ADDRESS='0x[0-9a-f]+'

@test "misaligned, repeated and overlapping answers are named, and nobody's data is lost" {
  # Lost otherwise: the data of two allocations that share bytes, long after the library's mistake.
  local all=(totals.allocations=5 totals.frees=5 totals.failed=1 backends.direct.allocations=1 backends.plugin.allocations=4)
  faulty misaligned "an allocation of 3000 bytes is at $ADDRESS, no multiple of 256; given back, the driver serves \(said once\)" "${all[@]}"
  faulty repeated "an allocation of 3000 bytes is at $ADDRESS, where one of 2000 bytes still is; not used, the driver serves \(said once\)" "${all[@]}"
  faulty overlapping "an allocation of 3000 bytes is at $ADDRESS and overlaps one of 2000 bytes at $ADDRESS; not used, the driver serves \(said once\)" \
    "${all[@]}"
}

@test "NULL is out of memory, and silent" {
  with_shim "$ALLOCATORS/faulty.so" FAULTY=null plugin_faults.shared
  assert_equal "$status $stderr" "0 "
  assert_equal "$(grep -c "cudaErrorMemoryAllocation" <<<"$output")" 6
}

@test "an exception that leaves the library is out of memory, not the end of the process" {
  faulty throws "an allocation of 3000 bytes threw an exception; taken for out of memory \(said once\)" totals.allocations=4 totals.failed=2
  assert_line "malloc 3: cudaErrorMemoryAllocation"
  assert_line "malloc 4: cudaSuccess"
}

@test "C++ exceptions: the library's destructors run, and C++ counts none in flight afterwards" {
  # Lost otherwise: a lock that the library holds for ever; whatever behaves differently during an exception.
  [ -f "$ALLOCATORS/thrower.so" ] || skip "no C++ compiler"
  needs_plain_build "a sanitizer's C++ support is not linked here"
  with_shim "$ALLOCATORS/thrower.so" plugin_faults.shared
  assert_success
  assert_line "malloc 3: cudaErrorMemoryAllocation"
  assert_line "malloc 4: cudaSuccess"
  assert_line "too large: cudaErrorMemoryAllocation"
  [[ $(head -n 1 <<<"$stderr") == "cuplug: $ALLOCATORS/thrower.so: an allocation of 3000 bytes threw "*counted*"; taken for out of memory (said once)" ]] ||
    fail "$stderr"
  assert_equal "$(tail -n +2 <<<"$stderr")" "held 0, in flight 0, alive 0"
}

@test "what the library frees of the program's is freed once" {
  # Lost otherwise: the next owner of that memory, when the program frees it again.
  with_shim "$ALLOCATORS/faulty.so" FAULTY=frees CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" plugin_faults.shared
  assert_equal "$status $stderr" "0 "
  assert_line "free 1: cudaSuccess"
  assert_line "free 2: cudaErrorInvalidValue"
  assert_line "free 3: cudaSuccess"
  check_stats totals.allocations=5 totals.frees=5 totals.live_blocks=0
}

# A library that hands out at once whatever it gets back: only the order in which it gets it protects the program.
EAGER=:alloc=eager_alloc,free=eager_free

@test "a library that reuses at once gets a block only when the device is done with it (C49)" {
  # Lost otherwise: the next owner's data. The library keeps one stream's order at best; cudaFree promises more.
  local BACKENDS=$ALLOCATORS/eager.so$EAGER
  assert_says "non-blocking: old kernel done before new owner's write: yes
legacy: old kernel done before new owner's write: yes
default: old kernel done before new owner's write: yes
blocking: old kernel done before new owner's write: yes
per-thread: old kernel done before new owner's write: yes
priority: old kernel done before new owner's write: yes
exited-thread: old kernel done before new owner's write: yes
behind-event: old kernel done before new owner's write: yes
crowd: old kernel done before new owner's write: yes" free_waits_for_kernel.shared all
  assert_says "recycled blocks: 2000, wrong: 0" recycled_blocks.shared 2000
  assert_says "threads with streams of their own: wrong blocks 0" thread_streams.ptds
  assert_says "finished: yes" persistent_kernel.link wait-value
  with_shim "$BACKENDS" stream_reuse.shared all
  assert_success
  refute_output --partial "no"
}

@test "with reuse=now it gets it at once, and the fault shows" {
  needs_plain_build "the fault is a race of the device's work, which they report"
  # That the test above can fail.
  with_shim "$ALLOCATORS/eager.so$EAGER,reuse=now" free_waits_for_kernel.shared non-blocking
  assert_line --partial "write: no"
}

@test "after a device reset a library that keeps memory is not believed" {
  # Lost otherwise: the program, by memory that no longer exists.
  local backend
  for backend in "$ALLOCATORS/example.so" "$ALLOCATORS/plain.so" "$ALLOCATORS/eager.so$EAGER"; do
    with_shim "$backend" plugin_memory.shared reset
    assert_equal "$backend: $status $output" "$backend: 0 life 1: wrong bytes 0
life 2: wrong bytes 0
life 3: wrong bytes 0"
    [[ $backend == *eager* ]] || assert_equal "$stderr" ""
  done
  [[ $stderr == "cuplug: "*"where the driver has none since a device reset; not used, the driver serves (said once)" ]] || fail "$stderr"
  assert_equal "$(wc -l <<<"$stderr")" 1
}

@test "out of memory: what the library does not have back yet is waited for before anything fails (C86)" {
  needs_sim "a card cannot be filled on a machine shared with others"
  local backend BACKENDS="$ALLOCATORS/example.so $ALLOCATORS/plain.so"
  assert_like_bare_driver SIMCUDA_MEMORY=256M out_of_memory.shared retry
  assert_like_bare_driver SIMCUDA_MEMORY=256M out_of_memory.shared async
  assert_like_bare_driver SIMCUDA_MEMORY=256M out_of_memory.shared earlier
  assert_like_bare_driver SIMCUDA_MEMORY=256M out_of_memory.shared exhaust
  for backend in $BACKENDS; do
    with_shim "$backend" SIMCUDA_MEMORY=256M plugin_memory.shared busy
    assert_equal "$backend: $status $output $stderr" "$backend: 0 large: cudaSuccess "
  done
}

# moment SPEC TEXT [VAR=VALUE…] MOMENT [LIBRARY]: the program's whole output.
moment() {
  local spec=$1 text=$2 settings=()
  shift 2
  while [[ $1 == *=* ]]; do settings+=("$1"); shift; done
  with_shim "$spec" "${settings[@]}" plugin_moments.link "$@"
  assert_same "$* ($spec)" "status 0: $text" "status $status: $output"
}

@test "a library is not called before its open has succeeded, nor after it failed" {
  # Lost otherwise: the process, by a function of a library that is closed.
  local text="free of no allocation: 1"
  moment "$ALLOCATORS/example.so:bad=1" "$text" refused
  assert_equal "$(wc -l <<<"$stderr")" 1
  moment "$ALLOCATORS/inside.so:wait" "$text
calls before open had returned: 0" early "$ALLOCATORS/inside.so"
}

@test "a library that frees the program's memory in its own free, while another thread ends the context" {
  # Lost otherwise: both threads, which wait for each other.
  moment "$ALLOCATORS/inside.so" "both came back" nested "$ALLOCATORS/inside.so"
}

@test "a library is not asked for what it keeps beside a capture" {
  needs_sim "a card cannot be filled on a machine shared with others"
  moment "$ALLOCATORS/example.so" "the capture ends: 0" SIMCUDA_MEMORY=100M trim
}

@test "out of memory, while kernels write in another thread's default stream to what it freed there" {
  # Lost otherwise: the next owner's data.
  needs_sim "a card cannot be filled on a machine shared with others"
  moment "$ALLOCATORS/example.so" "wrong bytes: 0" SIMCUDA_MEMORY=80M per-thread
}

@test "frees do not wait for more than natively: a kernel's partner is launched after them" {
  needs_sim "the age of the driver and the devices are chosen"
  local text="the partner came in time: yes" age
  for age in 12020 13000; do
    moment "$ALLOCATORS/plain.so" "$text" SIMCUDA_DRIVER="$age" async
  done
  moment "$ALLOCATORS/plain.so" "$text" SIMCUDA_DEVICES=2 devices-async
  moment "$ALLOCATORS/plain.so" "$text" SIMCUDA_DEVICES=2 devices-sync
}

@test "what a library's put-off frees will give back is not free on another device" {
  needs_sim "the devices are chosen"
  moment "$ALLOCATORS/plain.so" "more is free on the other device: 0" SIMCUDA_DEVICES=2 available
}

@test "the example plugin keeps what is freed, and says what it holds" {
  with_shim "$ALLOCATORS/example.so" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" stress.shared 100
  assert_success
  check_stats backends.plugin.allocations=1600 backends.plugin.reserved_bytes">=512" backends.plugin.live_bytes=0
}

@test "the header alone builds a plugin, in C and in C++" {
  # Lost otherwise: every author's first minute.
  local source=$BATS_TEST_TMPDIR/alone
  needs_own_processor "the compiler is"
  mkdir -p "$BATS_TEST_TMPDIR/include/cuplug"
  cp "$BUILD/include/cuplug/backend.h" "$BATS_TEST_TMPDIR/include/cuplug"
  echo '#include <cuplug/backend.h>' | tee "$source.c" >"$source.cc"
  run "${CC:-cc}" -std=c11 -pedantic -Wall -Wextra -Werror -isystem "$CUDA_INC" -I"$BATS_TEST_TMPDIR/include" -c "$source.c" -o "$source.o"
  assert_success
  command -v g++ >/dev/null || skip "no C++ compiler"
  run g++ -std=c++11 -pedantic -Wall -Wextra -Werror -isystem "$CUDA_INC" -I"$BATS_TEST_TMPDIR/include" -c "$source.cc" -o "$source.o"
  assert_success
}
