# The backend async: what the driver's own pools promise once they are under cudaMalloc. What every backend promises, it is tried on elsewhere, too.

load helpers/load

setup() {
  LOG=$BATS_TEST_TMPDIR/driver.log
}

@test "memory is usable at once by any stream of any thread, while what was freed before is still in use (C57)" {
  # Lost otherwise: the new owner's data, or an allocation that waits for a kernel.
  with_shim async pool_memory.link at_once
  assert_equal "status $status: $stderr" "status 0: "
  assert_output "used while the old kernel runs: yes, wrong bytes 0"
}

@test "what cudaMalloc returns comes from a pool of its own, and the device's default pool is left alone" {
  needs_sim "a log of the driver's calls"
  # Lost otherwise: what the program set up or measures there; or the pool.
  with_shim async CUPLUG_MEMINFO=raw SIMCUDA_LOG="$LOG" pool_memory.link kept
  assert_output "idle memory stays after a synchronisation: yes"
  assert_equal "$(grep -cE '^(cuMemAlloc_v2|cuMemAllocAsync(_ptsz)?|cuDeviceSetMemPool|cuDeviceGetDefaultMemPool|cuDeviceGetMemPool) ' "$LOG")" 0
  assert_equal "$(grep -cE '^cuMemPoolCreate ' "$LOG")" 2
}

@test "threshold= says how much stays when the program synchronises" {
  needs_sim "nobody else uses the device"
  # Lost otherwise: memory that other processes wait for.
  with_shim async CUPLUG_MEMINFO=raw pool_memory.link kept
  assert_output "idle memory stays after a synchronisation: yes"
  with_shim async:threshold=2M CUPLUG_MEMINFO=raw pool_memory.link kept
  assert_output "idle memory stays after a synchronisation: no"
}

@test "a host that runs far ahead of the device does not take more and more memory (C88)" {
  # Lost otherwise: all memory, to a loop that needs 32 MiB of it.
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim async CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" pool_memory.link ahead
  assert_equal "status $status: $stderr" "status 0: "
  check_stats totals.peak_reserved_bytes"<="$((160 << 20)) totals.allocations=60 totals.live_blocks=0
}

@test "what a context leaves behind in the pools is given back: destroyed, and reset (C97)" {
  needs_sim "a device of half a GiB"
  # Lost otherwise: memory, a little more with each context.
  with_shim async SIMCUDA_MEMORY=320M pool_memory.link lives
  assert_equal "status $status: $stderr" "status 0: "
  assert_output "lived eight times"
}

@test "contexts that end with freed memory still waiting lose none, also after idle memory was given back" {
  # Lost otherwise: that memory, for the life of the process.
  needs_sim "a device of its own"
  with_shim async discipline.link pools
  assert_line "the driver has given out 0 MiB"
}

@test "a device that is given access reaches the pool's memory, too, allocated before and after (C81)" {
  needs_sim "a log of the driver's calls"
  # Lost otherwise: NCCL, and every program that reaches over: a fault in its kernels.
  with_shim async SIMCUDA_DEVICES=2 SIMCUDA_LOG="$LOG" pool_memory.link peers
  assert_equal "status $status: $stderr" "status 0: "
  assert_equal "$(grep -cE '^cuMemPoolSetAccess .*-> 0' "$LOG")" 2
}

@test "a device without memory pools: direct serves, with one line; CUPLUG_STRICT=1 fails" {
  needs_sim "a driver without pools"
  with_shim async SIMCUDA_FAIL=cuMemPoolCreate:1-=801 runtime_kinds.shared malloc
  assert_success
  assert_equal "$stderr" "cuplug: async: device 0 has no memory pools; using direct there"
  with_shim async CUPLUG_STRICT=1 SIMCUDA_FAIL=cuMemPoolCreate:1-=801 runtime_kinds.shared malloc
  assert_failure
  [[ $stderr == "cuplug: async: device 0 has no memory pools; allocations will fail"* ]] || fail "$stderr"
}
