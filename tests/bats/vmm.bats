# pool:source=vmm: memory that is mapped, so that idle pages can move. What every backend promises, it is tried on elsewhere, too.

load helpers/load

VMM=pool:source=vmm

setup() {
  LOG=$BATS_TEST_TMPDIR/driver.log
}

@test "idle pages move together instead of more memory being taken (C88)" {
  # Lost otherwise: memory, to holes between blocks.
  with_shim $VMM CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" pool_memory.link pages
  assert_equal "status $status: $output$stderr" "status 0: wrong bytes 0"
  check_stats totals.peak_reserved_bytes=$((128 << 20)) totals.reserved_bytes=$((128 << 20))
}

@test "pages that the device still works on do not move" {
  # Lost otherwise: the program, by a fault in a kernel that was right.
  with_shim $VMM pool_memory.link busy_pages
  assert_equal "status $status: $output$stderr" "status 0: wrong bytes 0"
}

@test "nothing moves once somebody else may know where memory lies" {
  needs_sim "two devices of its own"
  # Lost otherwise: what a network card or another context does there.
  with_shim $VMM SIMCUDA_DEVICES=2 SIMCUDA_LOG="$LOG" pool_memory.link peers
  assert_success
  assert_equal "$(grep -c '^cuMemUnmap ' "$LOG")" 0
}

@test "what a context had is given back when it ends: destroyed, and reset (C97)" {
  needs_sim "a device of its own"
  # Lost otherwise: memory, with each context all that it had.
  with_shim $VMM SIMCUDA_MEMORY=320M pool_memory.link lives
  assert_equal "status $status: $output$stderr" "status 0: lived eight times"
}

@test "a device that is given access reaches what is mapped before and after (C81)" {
  needs_sim "a log of the driver's calls"
  # Lost otherwise: NCCL, and every program that reaches over: a fault in its kernels.
  with_shim $VMM SIMCUDA_DEVICES=2 SIMCUDA_LOG="$LOG" pool_memory.link peers
  assert_equal "status $status: $stderr" "status 0: "
  assert_equal "$(grep -cE '^cuMemSetAccess .*-> 0' "$LOG")" 4 # each device's own, and the other's
}

@test "a device without virtual memory management: source=device, with one line" {
  needs_sim "a driver without it"
  with_shim $VMM SIMCUDA_FAIL=cuDeviceGetAttribute:1-=801 pool_memory.link pages
  assert_equal "status $status: $output" "status 0: wrong bytes 0"
  assert_equal "$stderr" "cuplug: $VMM: device 0 has no virtual memory management; using source=device there"
}

@test "where the device cannot map, segments that lie side by side stay apart" {
  # Lost otherwise: a copy, which the driver refuses across two of its allocations.
  needs_sim "a driver without it"
  with_shim $VMM SIMCUDA_FAIL=cuDeviceGetAttribute:1-=801 discipline.link apart
  assert_line "memset of the whole: error 0"
}

@test "what moves counts once towards max=" {
  # Lost otherwise: all idle memory, which goes back, and an out of memory in the end.
  with_shim $VMM,max=128M CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" discipline.link moved
  assert_equal "$output" "wrong bytes: 0
done"
  check_stats totals.driver_frees=0 totals.reserved_bytes=$((128 << 20)) totals.host_waits=0
}

@test "memory freed on another context's stream can go back, too" {
  # Lost otherwise: that memory, and all that it merges with.
  needs_sim "a device of its own size"
  with_shim $VMM SIMCUDA_MEMORY=192M discipline.link foreign
  assert_line "nearly all of the device: error 0"
}

@test "what the driver did not take back it is offered again" {
  needs_sim "a driver that refuses"
  with_shim $VMM SIMCUDA_MEMORY=400M discipline.link refused
  assert_line "half of the device: error 0"
}

@test "source=managed: a pool over managed memory" {
  # Lost otherwise: what was asked for.
  with_shim pool:source=managed limits.link attributes
  assert_success
  assert_line --partial "managed: yes"
  with_shim pool:source=managed CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" recycled_blocks.shared 200
  assert_success
  check_stats totals.waits=0 backends.pool.allocations">="200
}
