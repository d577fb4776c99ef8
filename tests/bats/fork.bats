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

@test "a child forked after CUDA started is refused and can exit, while threads of the parent allocate (C99, C100)" {
  # Lost otherwise: the child, which hangs in a lock that some thread of the parent held.
  assert_like_bare_driver fork_after.shared 20
  assert_output --partial "not ended by themselves 0"
  assert_line "parent's data: wrong bytes 0"
}

@test "two thousand forks while eight threads allocate and free: each child calls, is refused, and ends (C99)" {
  # Lost otherwise: a child now and then, which hangs in a lock that some thread of the parent held.
  local BACKENDS=pool forks=2000
  needs_own_processor "slow"
  [ -z "$QUICK" ] || forks=300
  assert_says "children: $forks, cudaMalloc refused $forks, cudaMallocAsync refused $forks, cudaFree refused $forks, the driver's functions refused $forks, not ended by themselves 0
parent's data: wrong bytes 0" fork_after.shared $forks
}

@test "a child whose thread ends as threads do ends, while threads of the parent allocate" {
  # Lost otherwise: the child, which hangs in a lock that some thread of the parent held.
  needs_plain_build "the end of a child's thread takes locks of its own, which the parent's threads may have held"
  needs_own_processor "slow"
  assert_says "children that ended: 100" thread_blocks.shared forked
}

@test "children that end by exit, _exit, quick_exit and exec make no driver call, and the parent alone reports (C98)" {
  # Lost otherwise: the parent's work, when a child's exit takes its device down; a report that is not the parent's.
  local backend log=$BATS_TEST_TMPDIR/log expected
  assert_like_bare_driver fork_ends.shared
  assert_line "the parent's data: wrong bytes 0"
  expected=$output
  for backend in $BACKENDS; do
    rm -f "$log" "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" SIMCUDA_LOG="$log" CUPLUG_REPORT=1 CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" fork_ends.shared
    assert_same "$backend" "$expected" "$output"
    assert_equal "$(grep -c '^cuplug: total ' <<<"$stderr")" 1
    check_stats totals.allocations=21 totals.frees=21 totals.live_blocks=0
    [ "$CUPLUG_TEST_DRIVER" = sim ] || continue
    # Two marks for each child, and nothing between the two.
    assert_equal "$backend: $(awk '/^cuDriverGetVersion/ { if (++marks % 2 == 0) pairs += last ~ /^cuDriverGetVersion/ } { last = $0 } END { print marks, pairs }' "$log")" \
      "$backend: 8 4"
  done
}

@test "a child may load libraries, whatever threads of the parent allocate" {
  # Lost otherwise: workers that fork and then import their modules, which hang in the loader.
  assert_says "children: 20, loaded their library 20, hung 0" fork_loads.shared "$PROGRAMS/next_first.so" 20
}

@test "a child is refused although a thread of the program's was inside the loader at the fork (C99)" {
  # Lost otherwise: the child of a program one of whose threads threw an exception at that moment.
  needs_plain_build "they use the loader themselves"
  assert_says "the child ended by itself, and was refused: yes" fork_in_loader.shared
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
