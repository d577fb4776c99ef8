# Contexts come and go: memory belongs to one of them and goes with it.

load helpers/load

@test "several contexts on one device, whichever is current at the free, and one that is destroyed (C97)" {
  # Lost otherwise: data, when a block waits for the work of the wrong context.
  assert_like_bare_driver contexts.link
  refute_line --partial ": no"
  refute_output --regexp "wrong bytes [1-9]"
}

@test "a device reset with live, freed and pending memory (C97)" {
  # Lost otherwise: the program, by cached memory that no longer exists.
  assert_like_bare_driver context_reset.shared
  assert_like_bare_driver context_reset.static
  assert_line "lived three times"
  refute_output --partial "wrong bytes"
}

@test "what a reset or a destruction took along is called lost, and not live (C97)" {
  # Lost otherwise: hours, in search of leaks that are none.
  local backend
  for backend in $BACKENDS; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_REPORT=1 CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" context_reset.shared
    check_stats totals.allocations=54 totals.frees=39 totals.lost_blocks=15 totals.live_blocks=0 totals.live_bytes=0
    grep -qxF "cuplug: 15 allocations were lost with their context" <<<"$stderr" || fail "$backend: $stderr"
  done
}

@test "cudaFree(NULL) as the first call of a process or thread makes the runtime start, on the device that was set (C95)" {
  # Lost otherwise: programs that start the runtime so, and then use the driver.
  assert_like_bare_driver first_call.shared
  assert_like_bare_driver first_call.static
  assert_line "primary context 0: active 1"
  assert_line "a thread: bound no, cudaFree(NULL): cudaSuccess, bound yes"
  [ "$CUPLUG_TEST_DRIVER" = sim ] || return 0 # as many devices as there are
  assert_like_bare_driver SIMCUDA_DEVICES=2 first_call.shared 1
  assert_line "primary context 0: active 0"
  assert_line "primary context 1: active 1"
}

@test "contexts born behind a device wait, referenced twice, and destroyed while others allocate" {
  # Lost otherwise: data of the newcomer, a context still in use, or the program in a call about a context that is gone.
  assert_like_bare_driver SIMCUDA_MEMORY=640M context_life.link
  assert_line "written by a context born later: yes"
  assert_line "contexts that came and went: wrong 0"
  refute_output --regexp "wrong bytes.* [1-9]"
}

@test "memory freed in the order of another context's stream" {
  # Lost otherwise: the program, which hangs where the stream waits for what comes after the free; the next owner's data; or the memory.
  assert_like_bare_driver SIMCUDA_MEMORY=320M foreign_streams.link
  assert_line "the free returned before the stream's work was over: yes"
  assert_line "next owner's data behind a foreign stream: wrong 0"
  assert_line "next owner's data behind a foreign default stream: wrong 0"
  assert_line "next owner's data behind a foreign stream that ended in a capture: wrong 0"
  assert_line "freed 100 times: failed 0"
  assert_line "freed and the context gone, 60 times: failed 0"
}

@test "memory freed in the order of another context's streams, which end while something captures" {
  # Lost otherwise: all the device's memory, a block at a time.
  needs_sim "memory of a given size"
  local BACKENDS="direct pool arena:size=100% managed:max=320M async"
  local said="freed on a stream that is destroyed, each in a capture: failed 0
freed in a thread that ends, each in a capture: failed 0
freed on a stream that is destroyed, all in one capture: failed 0
freed in a thread that ends, all in one capture: failed 0"
  assert_says "$said" SIMCUDA_MEMORY=322M foreign_ends.link
  assert_says "$said" SIMCUDA_MEMORY=322M SIMCUDA_DEVICES=2 SIMCUDA_DRIVER=12020 foreign_ends.link elsewhere
  assert_says "$said" SIMCUDA_MEMORY=322M SIMCUDA_DEVICES=2 foreign_ends.link elsewhere
}

@test "one reference to the primary context is given back while a free waits for the device" {
  # Lost otherwise: the program, which hangs.
  local BACKENDS="$BACKENDS pool:free=wait"
  assert_says "released" release_beside_free.link
  BACKENDS=pool
  [ "$CUPLUG_TEST_DRIVER" = gpu ] || assert_says "released" SIMCUDA_DRIVER=12020 release_beside_free.link
}

@test "a device reset again and again while threads allocate and free: what is handed out is memory, and nobody hangs (C97)" {
  # Lost otherwise: the process, or its own data, as an address of the host's was handed out.
  needs_sim "whether the real driver bears it, nobody promises"
  local backend
  for backend in pool managed; do
    with_shim "$backend" reset_beside.link 2
    assert_same "$backend" "status 0: addresses that are none: 0" "status $status: $output$stderr"
  done
}
