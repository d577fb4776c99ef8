# Reuse without waiting: a block goes to its next owner only behind the work of the last one, and nothing else is made to wait.

load helpers/load

FREE_WAITS="non-blocking: old kernel done before new owner's write: yes
legacy: old kernel done before new owner's write: yes
default: old kernel done before new owner's write: yes
blocking: old kernel done before new owner's write: yes
per-thread: old kernel done before new owner's write: yes
priority: old kernel done before new owner's write: yes
exited-thread: old kernel done before new owner's write: yes
behind-event: old kernel done before new owner's write: yes
crowd: old kernel done before new owner's write: yes"

REUSE="async-to-async async-to-sync sync-to-async sync-to-sync same-stream freed-by-cudaFree default-to-stream legacy-to-stream
per-thread-to-stream stream-to-default two-threads handle-again"

@test "a block freed while a kernel still writes it is not handed out early (C49)" {
  # Lost otherwise: the next owner's data, overwritten by a kernel of the last one.
  assert_says "$FREE_WAITS" free_waits_for_kernel.shared all
}

@test "the same with the static runtime and per-thread default streams (C49)" {
  assert_says "$FREE_WAITS" free_waits_for_kernel.static all
  assert_says "$FREE_WAITS" free_waits_for_kernel.ptds all
}

@test "large blocks are reused behind the old kernels by a wait on the device, not by new memory (C49)" {
  # Lost otherwise: memory, or the test above, which would never see a block come back early.
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" free_waits_for_kernel.shared crowd
  assert_success
  check_stats totals.allocations=48 totals.fences">="1 totals.waits">="1 totals.driver_allocs"<="24
}

@test "reuse=completed: the same without a wait on the device; free=wait: cudaFree returns when all work is done (C49)" {
  # Lost otherwise: what the options promise to programs that the default does not suit.
  local BACKENDS="pool:reuse=completed pool:free=wait"
  assert_says "$FREE_WAITS" free_waits_for_kernel.shared all
  with_shim pool:reuse=completed CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" free_waits_for_kernel.shared crowd
  assert_success
  check_stats totals.allocations=48 totals.waits=0
  BACKENDS="direct pool:free=wait"
  assert_says "4096 bytes: work done when cudaFree returned: yes
262144 bytes: work done when cudaFree returned: yes
4194304 bytes: work done when cudaFree returned: yes" free_waits_for_kernel.shared host
}

@test "an allocation does not order new work behind a kernel launched after the free" {
  # Lost otherwise: the program, which hangs: a kernel waits for one that waits for it.
  assert_says "finished: yes" persistent_kernel.link wait-value
}

@test "the same when the work of what was freed has ended by then" {
  # Lost otherwise: the program, when an allocation gives memory back and that waits for the kernel.
  assert_says "finished: yes" persistent_kernel.link wait-value 4096 200
}

@test "nor behind one that frees on other streams came after" {
  # Lost otherwise: the same, as a cudaFreeAsync waits for its own stream alone.
  local kib
  for kib in 4096 12288; do
    assert_says "finished: yes" persistent_kernel.link wait-value $kib 0 200
  done
}

@test "the same with a host function that waits" {
  needs_sim "the real driver runs host functions one at a time"
  assert_says "finished: yes" persistent_kernel.link host-function
}

@test "recycled blocks keep their data on random streams" {
  # Lost otherwise: a wrong byte once in a thousand blocks.
  assert_says "recycled blocks: 2000, wrong: 0" recycled_blocks.shared 2000
  assert_says "recycled blocks: 1000, wrong: 0" recycled_blocks.ptds 1000
}

@test "memory freed in stream order is not given to other streams early" {
  # Lost otherwise: data of programs that use cudaMallocAsync on several streams.
  local expected
  expected=$(for name in $REUSE; do echo "$name: next owner keeps its data: yes"; done)
  assert_says "$expected" stream_reuse.shared all
  assert_says "$expected" stream_reuse.ptds all
}

@test "sixteen threads allocate, exchange, check and free in every way" {
  # Lost otherwise: any data, in a program with threads.
  local backend variant
  without_shim stress.shared
  assert_success
  assert_line "blocks: 2400, wrong: 0"
  for backend in $BACKENDS; do
    for variant in shared static-ptds; do
      count "$backend" "$backend" "stress.$variant" 150
      assert_line "blocks: 2400, wrong: 0"
    done
  done
}
