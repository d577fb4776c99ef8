# What goes wrong in the driver: the program gets the driver's codes, and whatever fails on the way, nothing is lost.

load helpers/load

setup() {
  FAILURES="direct pool arena:size=64M managed:force=1 $ALLOCATORS/example.so"
}

@test "whatever driver call fails, the program has memory that works or an error, and nothing is left behind (C27)" {
  # Lost otherwise: memory of the device, a little with each failure that the program itself survived.
  needs_sim "makes the driver fail"
  local backend
  without_shim SIMCUDA_MEMORY=96M failures.link
  assert_success
  [[ $stderr =~ failures:\ [0-9]{3} ]] || fail "$stderr"
  for backend in $FAILURES; do
    with_shim "$backend" SIMCUDA_MEMORY=96M failures.link
    refute_output --partial "with "
    assert_success
    assert_equal "$(grep -c ': right$' <<<"$output")" 10
    [[ $stderr =~ failures:\ [0-9]{3} ]] || fail "$stderr" # hundreds: the shim's own calls are among them
  done
}

@test "ten thousand rounds of one failure leave nothing behind, on the device or the host (C27)" {
  needs_sim "makes the driver fail"
  needs_plain_build "they keep memory that was freed"
  local backend item
  for backend in $FAILURES; do
    for item in cuMemFree_v2:1-=1 cuCtxRecordEvent:1-=2,cuEventRecord:1-=2,cuMemAdvise_v2:1-=1 cuEventCreate:1-=801 cuStreamGetId:1-=1; do
      [[ $backend == direct && $item == cuMemFree* ]] && continue # what the driver does not free stays, without the shim, too
      with_shim "$backend" SIMCUDA_MEMORY=96M failures.link rounds "$item"
      assert_equal "$backend, $item: status $status: $output" "$backend, $item: status 0: rounds: right"
    done
  done
}

@test "a fault is said by allocations and frees alike, soon, and by every call from then on until the context is reset" {
  # Lost otherwise: the hour that goes by before somebody sees that a program computes nothing any more.
  needs_sim "makes the device fault; the GPU run has a program with real ones"
  local backend
  without_shim faulted.link
  assert_success
  assert_equal "$(grep -c 'of 15 errors said soon: 15, said by every call from then on: 15, over after a reset: 15$' <<<"$output")" 16
  assert_like_bare_driver faulted.link
  BACKENDS="pool:free=wait pool:reuse=completed arena:size=64M managed:force=1"
  assert_like_bare_driver faulted.link
}

@test "a free that waits says what went wrong meanwhile" {
  needs_sim "makes the device fault"
  local BACKENDS="direct"
  assert_says "a free that waits: 700
again: 700" faulted.link wait
  with_shim pool:free=wait faulted.link wait
  assert_line "a free that waits: 700"
}
