# cuplug as the allocator that PyTorch and CuPy are told to use: its library opened, not preloaded.

load helpers/load

told() {
  echo "nothing: NULL NULL
memory: wrong bytes 0, backend $1
base: yes
too much: NULL
another stream: yes, a recorded stream: yes
capture: cudaSuccess
graph memory handed out: 0, wrong bytes 0
given back with the pool: 1
within a small fraction: NULL
CuPy's: old kernel done before new owner's write: yes
live at the end: 0, pending error: cudaSuccess"
}

@test "opened as an allocator, without LD_PRELOAD: every backend, the pool if none is named" {
  # Lost otherwise: data, to blocks that come back early or while a graph uses them; the capture itself.
  local backend variant
  for variant in shared static ptds; do
    without_shim "pluggable.$variant" "$SHIM"
    assert_same "$variant" "$(told pool)" "$output$stderr"
  done
  for backend in direct arena:size=512M managed pool:reuse=completed; do
    without_shim CUPLUG_BACKEND="$backend" pluggable.shared "$SHIM"
    assert_same "$backend" "$(told "${backend%%:*}")" "$output$stderr"
  done
}

@test "opened as an allocator by a program that is preloaded as well" {
  local backend
  for backend in $BACKENDS; do
    with_shim "$backend" pluggable.shared "$SHIM"
    assert_same "$backend" "$(told "$(backend_name "$backend")")" "$output$stderr"
  done
}

@test "opened as an allocator: counted like any other, and nothing rests on device waits, as other contexts are not seen" {
  # Lost otherwise: figures; data that another context writes.
  without_shim CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" pluggable.shared "$SHIM"
  assert_success
  check_stats backends.pool.failed=1 totals.live_blocks=0 totals.waits=0
}
