# Older drivers: before 12.5 there are no context fences, before 12.0 no identities of contexts and streams, before 11.3 no
# cuGetProcAddress. Slower is fine; wrong is not. Lost otherwise: machines whose driver nobody upgrades.

load helpers/load

setup() {
  needs_sim "chooses the driver's version"
}

on_driver() {
  local version=$1 name kind backend
  without_shim SIMCUDA_DRIVER="$version" free_waits_for_kernel.shared non-blocking
  assert_success
  assert_says "non-blocking: old kernel done before new owner's write: yes" SIMCUDA_DRIVER="$version" free_waits_for_kernel.shared non-blocking
  assert_says "crowd: old kernel done before new owner's write: yes" SIMCUDA_DRIVER="$version" free_waits_for_kernel.shared crowd
  assert_says "recycled blocks: 500, wrong: 0" SIMCUDA_DRIVER="$version" recycled_blocks.shared 500
  for name in async-to-async async-to-sync sync-to-async two-threads handle-again; do
    assert_says "$name: next owner keeps its data: yes" SIMCUDA_DRIVER="$version" stream_reuse.shared "$name"
  done
  assert_like_bare_driver SIMCUDA_DRIVER="$version" context_reset.shared
  assert_like_bare_driver SIMCUDA_DRIVER="$version" double_free.shared
  for backend in $BACKENDS; do
    for kind in malloc async managed from_pool; do
      count "$backend" "" SIMCUDA_DRIVER="$version" runtime_kinds.shared "$kind"
      count "$backend" "" SIMCUDA_DRIVER="$version" runtime_kinds.static-ptds "$kind"
    done
    count "$backend" "$backend" SIMCUDA_DRIVER="$version" stress.shared 60
    assert_line "blocks: 960, wrong: 0"
  done
}

@test "driver 12.2: no context fence" {
  on_driver 12020
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" SIMCUDA_DRIVER=12020 free_waits_for_kernel.shared crowd
  check_stats totals.fences=0 totals.waits=0 totals.host_waits">="1
}

@test "driver 11.8: no identities" {
  on_driver 11080
}

@test "driver 11.2: no cuGetProcAddress" {
  on_driver 11020
}

@test "a driver of the future" {
  on_driver 99000
}
