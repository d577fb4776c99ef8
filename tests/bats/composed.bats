# Several backends for one program: what does not fit in one goes to the next; and a limit to what may be live.

load helpers/load

# filled BACKEND FALLBACK LINE KIND COUNT MIB [SETTING…]: both rounds of the program say this.
filled() {
  local backend=$1 fallback=$2 line=$3 kind=$4 count=$5 size=$6
  shift 6
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim "$backend" CUPLUG_FALLBACK="$fallback" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "$@" composed.link fill "$kind" "$count" "$size"
  assert_equal "$backend, $fallback, $kind: $status: $output$stderr" "$backend, $fallback, $kind: 0: $line, wrong 0
$line, wrong 0"
}

@test "what does not fit in the backend is the fallback's, each block with its own bytes, of whatever kind (C90)" {
  # Lost otherwise: the program, out of memory; or data.
  local kind
  for kind in plain ordered pitched; do
    filled pool:max=64M managed "8 of the device's, 16 managed, 0 refused" $kind 24 8
    check_stats backends.pool.allocations=16 backends.managed.allocations=32 backends.pool.live_blocks=0 backends.managed.live_blocks=0 totals.failed=0
  done
}

@test "under direct the fallback has what the driver has no memory for" {
  needs_sim "a device of its own size"
  local kind
  for kind in plain pitched; do
    filled direct managed:max=64M "8 of the device's, 8 managed, 0 refused" $kind 16 8 SIMCUDA_MEMORY=66M
    check_stats backends.direct.allocations=16 backends.managed.allocations=16
  done
}

@test "fallbacks are tried in their order; in the end the error is the driver's" {
  filled pool:max=32M "arena:size=32M managed:max=32M" "8 of the device's, 4 managed, 4 refused" plain 16 8
  check_stats backends.pool.allocations=8 backends.arena.allocations=8 backends.managed.allocations=8 totals.failed=8
}

@test "a library stands in, too" {
  filled pool:max=32M "$ALLOCATORS/example.so" "16 of the device's, 0 managed, 0 refused" plain 16 8
  check_stats backends.pool.allocations=8 backends.plugin.allocations=24
}

@test "CUPLUG_LIMIT bounds what is live, exactly, with 16 threads and every backend (C90)" {
  # Lost otherwise: another program's memory.
  local backend
  for backend in direct pool arena:size=128M managed async "$ALLOCATORS/example.so"; do
    with_shim "$backend" CUPLUG_LIMIT=64M composed.link limit 64
    assert_equal "$backend: $status: $output$stderr" "$backend: 0: above the limit: 0 times, refused some: yes
a byte more: 2"
  done
}

@test "cudaMemGetInfo says what the limit leaves" {
  local backend
  for backend in direct pool async; do
    with_shim "$backend" CUPLUG_LIMIT=64M composed.link info
    assert_output "before: 64 MiB free
with 24 MiB live: 40 MiB free
after: 64 MiB free"
  done
}

@test "what ended with its context no longer counts towards the limit" {
  # Lost otherwise: the next context's memory.
  with_shim pool CUPLUG_LIMIT=16M context_reset.shared
  assert_line "lived three times"
}

@test "what the limit does not allow is the fallback's" {
  local kind
  for kind in plain ordered pitched; do
    filled pool managed "4 of the device's, 12 managed, 0 refused" $kind 16 8 CUPLUG_LIMIT=32M
  done
}

@test "fallbacks that make no sense: one line, and none" {
  local said
  with_shim pool CUPLUG_FALLBACK="managed pool" composed.link fill plain 2 1
  assert_equal "$stderr" "cuplug: CUPLUG_FALLBACK=managed pool: pool is the backend itself (another one than CUPLUG_BACKEND); ignored"
  with_shim pool CUPLUG_FALLBACK="managed managed:max=1G" composed.link fill plain 2 1
  assert_equal "$stderr" "cuplug: CUPLUG_FALLBACK=managed managed:max=1G: managed stands there twice (another one than before); ignored"
  CUPLUG_BACKEND=pool CUPLUG_FALLBACK="managed:max=4G,force=1 arena:size=1G" run --separate-stderr "$BUILD/cuplug" config
  assert_line --partial "# managed:max = 4G"
  assert_line --partial "# arena:size = 1G"
}
