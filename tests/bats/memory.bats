# Running short of memory: what was freed is given back before anything fails, and errors are seen exactly once.

load helpers/load

short_of_memory() {
  local BACKENDS="direct pool arena:size=100% managed async"
  needs_sim "a card cannot be filled on a machine shared with others"
  assert_like_bare_driver SIMCUDA_MEMORY=256M "$@"
}

@test "one large request gets the memory of many freed blocks, and leaves no error behind (C86)" {
  # Lost otherwise: the program, which takes a stale error for its own.
  short_of_memory out_of_memory.shared retry
  assert_line "large: cudaSuccess, pointer set, pending cudaSuccess"
  assert_line "large from a new place: cudaSuccess, pointer set, pending cudaSuccess"
  short_of_memory out_of_memory.static retry
}

@test "the same in stream order (C86)" {
  short_of_memory out_of_memory.shared async
  assert_line "large: cudaSuccess, pointer set, pending cudaSuccess"
}

@test "an error that the program has not read yet survives (C86)" {
  short_of_memory out_of_memory.shared earlier
  refute_output --partial "first read: cudaSuccess"
}

@test "a request that nobody can serve fails once, with one pending error (C86)" {
  # Lost otherwise: programs that shrink their batch on out of memory and go on.
  assert_like_bare_driver out_of_memory.shared real
  assert_like_bare_driver out_of_memory.static real
  assert_like_bare_driver out_of_memory.ptds real
}

@test "memory taken to the last piece fails as out of memory, and can be taken again" {
  short_of_memory out_of_memory.shared exhaust
}

@test "an allocation that the driver refuses once is tried again (C86)" {
  needs_sim "makes the driver fail"
  local backend
  for backend in pool; do
    with_shim "$backend" SIMCUDA_MEMORY=256M SIMCUDA_FAIL=cuMemAlloc_v2:4=2 out_of_memory.shared retry
    assert_success
    assert_line "large: cudaSuccess, pointer set, pending cudaSuccess"
    refute_output --regexp "wrong bytes: [1-9]"
  done
}

@test "few freed bytes, of which no record was made, are given back as well before another allocation fails" {
  # Lost otherwise: managed memory, pools and pitched memory of the program's own, for want of what a cache holds idle.
  needs_sim "makes the driver fail"
  with_shim pool SIMCUDA_FAIL=cuMemAllocManaged:1=2 out_of_memory.shared managed
  assert_line "managed: cudaSuccess, pointer set, pending cudaSuccess"
  assert_line "managed freed: cudaSuccess, pointer NULL, pending cudaSuccess"
}

@test "memory of other kinds gets what a cache holds idle" {
  # Lost otherwise: NCCL, JAX, expandable segments: out of memory on a device that is nearly empty.
  local BACKENDS="direct pool pool:source=vmm managed:max=4G async"
  needs_sim "a card cannot be filled on a machine shared with others"
  assert_says "cuMemCreate: 0
array: 0
array: 0" SIMCUDA_MEMORY=1G idle_memory.link others
}

@test "while a stream captures, what is freed is there again, many times over" {
  # Lost otherwise: a long capture, or every thread beside it, for want of memory.
  local BACKENDS="direct pool arena managed" # a library is not called during a capture, so what it freed stays put off
  needs_sim "a card cannot be filled on a machine shared with others"
  assert_says "allocations in a row: 200, 0
the capture's end: 0" SIMCUDA_MEMORY=1G idle_memory.link capturing
}

@test "memory freed by threads that end, each with a default stream of its own, is used again" {
  # Lost otherwise: all the device's memory, a request at a time.
  local backend
  for backend in pool managed; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" SIMCUDA_MEMORY=1G idle_memory.link threads
    assert_output "requests: done"
    check_stats totals.allocations=60 totals.peak_reserved_bytes"<=$((64 << 20))"
  done
}

@test "what nothing can satisfy is refused at once, without a wait for the device" {
  needs_sim "over-sized requests only here"
  assert_says "a PiB of managed memory: 2, the kernel: runs" idle_memory.link hopeless
}

@test "an allocation that needs what was freed does not wait for a kernel launched since" {
  # Lost otherwise: the program, which hangs: a kernel waits for a launch that waits for it.
  needs_sim "memory of a given size"
  local BACKENDS="direct pool pool:source=vmm managed arena:size=100% async"
  assert_says "allocation: 0
waited for the kernel: no" SIMCUDA_MEMORY=36M memory_short.link records
  assert_says "allocation: 0
waited for the kernel: no" SIMCUDA_MEMORY=40M memory_short.link stream
}

@test "memory freed in one context is there for another of the device" {
  needs_sim "memory of a given size"
  local BACKENDS="direct pool pool:source=vmm managed async $ALLOCATORS/example.so $ALLOCATORS/plain.so" # an arena is one context's
  assert_says "allocation: 0" SIMCUDA_MEMORY=100M memory_short.link context
}

@test "so it is where nobody recorded the last of its frees" {
  # Lost otherwise: the program, out of memory on a device that has nothing to do.
  needs_sim "memory of a given size"
  local BACKENDS="direct pool pool:source=vmm managed:max=1G async $ALLOCATORS/example.so $ALLOCATORS/plain.so"
  assert_says "allocation: 0" SIMCUDA_MEMORY=1G memory_short.link pieces
}

@test "one trim gives back all that is idle" {
  # Lost otherwise: other processes' memory, for who asks once.
  local BACKENDS="direct pool pool:source=vmm managed async $ALLOCATORS/plain.so"
  assert_says "left: 0" memory_short.link trimmed
}

@test "blocks that a thread keeps for itself are others' once it ends, and when another thread frees what it allocates" {
  # Lost otherwise: memory, a little with every thread, or all of it in a pipeline.
  local backend way
  for way in ended remote; do
    for backend in pool managed; do
      count "$backend" "$backend" thread_blocks.shared "$way"
      check_stats "totals.peak_reserved_bytes<=$((32 << 20))"
    done
  done
}

@test "a program that has taken every pthread key goes without, and its keys stay its own" {
  # Lost otherwise: what the program keeps by its keys, or the blocks of every thread that ends.
  needs_sim "a driver may need a key itself"
  count pool pool thread_blocks.shared keys
  check_stats "totals.peak_reserved_bytes<=$((32 << 20))"
}

@test "threads that free little and end do not each cost a driver call" {
  # Lost otherwise: the speed of programs that start a thread for every task.
  count pool pool thread_blocks.shared ended
  check_stats "totals.fences<=400"
}

@test "blocks that an idle thread keeps are there for another's larger one" {
  # Lost otherwise: the last megabytes, which nobody uses.
  with_shim arena:size=64M thread_blocks.shared idle
  assert_success
  assert_output "the other 24 MiB: cudaSuccess"
}

@test "blocks that a thread keeps are not handed out once the device was reset" {
  # Lost otherwise: data, written to memory that is no more, or that another thread has as well.
  assert_says "bytes wrong after the reset: 0" thread_blocks.shared reset
}
