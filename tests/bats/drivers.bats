# Older drivers: before 12.5 there are no context fences, before 12.0 no identities of contexts and streams, before 11.3 no
# cuGetProcAddress. Slower is fine; wrong is not. Lost otherwise: machines whose driver nobody upgrades.

load helpers/load

setup() {
  needs_sim "chooses the driver's version"
}

# every_kind VERSION: each kind of allocation, reached in ways of each sort (ways.bats has them all, for today's driver).
every_kind() {
  local way kind
  needs_time "the same programs run on the newest driver"
  for kind in malloc async pitch 3d managed from_pool malloc_freed_async async_freed_sync; do
    for way in shared static-ptds; do
      assert_like_bare_driver SIMCUDA_DRIVER="$1" runtime_kinds.$way $kind
    done
    [ $kind = 3d ] && continue
    for way in link-ptds dlsym getproc1-ptds getproc2 deep2 entrypoint; do
      assert_like_bare_driver SIMCUDA_DRIVER="$1" driver_kinds.$way $kind # without a look-up function some only say so
    done
  done
}

# every_sort VERSION: programs of every other sort.
every_sort() {
  local program variant expected backend
  while read -r program; do
    [[ $1 == 11020 && $program == persistent_kernel* ]] && continue # 11.2 lacks what it is linked to
    # shellcheck disable=SC2086
    assert_like_bare_driver SIMCUDA_DRIVER="$1" $program
    [[ $program == pairs* ]] || assert_success # 11.2 has no memory of graphs
  done <<END
stress.shared 40
stress.static-ptds 40
zero_size.shared
zero_size_driver.link
no_context.link
huge_sizes.shared
pairs.shared
pairs.static
stream_destroyed.shared
own_pools.link cuDeviceSetMemPool
persistent_kernel.link wait-value
limits.link granule
faulted.link
END
  assert_like_bare_driver SIMCUDA_DRIVER="$1" SIMCUDA_DEVICES=2 two_devices.shared
  for variant in shared ptds; do
    without_shim SIMCUDA_DRIVER="$1" "capture.$variant"
    [ "$1" = 11020 ] && continue # 11.2 cannot instantiate graphs as the runtime here does
    assert_success
    expected=$output
    for backend in $BACKENDS; do
      with_shim "$backend" SIMCUDA_DRIVER="$1" "capture.$variant"
      assert_equal "$backend: $status $stderr" "$backend: 0 "
      assert_nothing_spoiled "$expected" "$output"
      refute_output --partial "replay wrong"
    done
  done
  local BACKENDS="direct pool arena:size=100% managed async"
  for variant in retry async earlier exhaust; do
    assert_like_bare_driver SIMCUDA_DRIVER="$1" SIMCUDA_MEMORY=256M out_of_memory.shared $variant
  done
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

@test "driver 12.2: every kind and sort of program" {
  every_kind 12020
  every_sort 12020
}

@test "driver 11.8: no identities" {
  on_driver 11080
}

@test "driver 11.8: every kind and sort of program" {
  every_kind 11080
  every_sort 11080
}

@test "driver 11.2: no cuGetProcAddress" {
  on_driver 11020
}

@test "driver 11.2: every kind and sort of program" {
  every_kind 11020
  every_sort 11020
}

@test "a driver of the future" {
  on_driver 99000
}

@test "a driver of the future: every kind and sort of program" {
  every_kind 99000
  every_sort 99000
}
