# Processes that fork: before CUDA is used nothing may have happened, afterwards the child is refused as CUDA refuses it.

load helpers/load

@test "the shim does not start the driver before the program does, so that forked workers can (C100)" {
  # Lost otherwise: data loaders and servers that fork workers first and use CUDA in them.
  local text="driver loaded before the fork: no
runtime 13
malloc: right
expect allocations=4 frees=4 peak_live_bytes=100000 live_blocks=0 live_bytes=0 failed=0
errors: cudaSuccess, cudaErrorMemoryAllocation, cudaErrorMemoryAllocation, cudaSuccess
child: exit 0
driver loaded in the parent: no"
  assert_says "$text" fork_before "$PROGRAMS/plugin_shared.so" malloc
}

@test "only the process that used CUDA writes statistics" {
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" fork_before "$PROGRAMS/plugin_shared.so" malloc
  assert_success
  check_stats totals.allocations=4 totals.frees=4
}

@test "a child forked after CUDA started is refused and can exit, while threads of the parent allocate (C100)" {
  # Lost otherwise: the child, which hangs in a lock that some thread of the parent held.
  assert_like_bare_driver fork_after.shared 20
  assert_output --partial "not ended by themselves 0"
  assert_line "parent's data: wrong bytes 0"
}

@test "a child may load libraries, whatever threads of the parent allocate" {
  # Lost otherwise: workers that fork and then import their modules, which hang in the loader.
  assert_says "children: 20, loaded their library 20, hung 0" fork_loads.shared "$PROGRAMS/next_first.so" 20
}

@test "a child forked after CUDA started is refused by the driver, not served from a cache (C100)" {
  # Lost otherwise: the parent's memory, handed to a process that cannot use it.
  assert_like_bare_driver fork_after_driver.link
  assert_line "child ended by itself: yes"
  assert_line "parent's data: wrong bytes 0"
}

@test "children forked after CUDA started write no statistics" {
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" fork_after.shared 4
  assert_success
  check_stats totals.live_blocks=0
}
