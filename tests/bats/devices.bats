# Several devices in one process: memory stays where it belongs, and a free on one holds up no other.

load helpers/load

@test "collectives over two devices, with allocations and frees between their launches: no wait, no hang (C61)" {
  # Lost otherwise: NCCL jobs, which stand still when a free waits for a kernel whose partner is not launched yet.
  local backend log=$BATS_TEST_TMPDIR/log CUPLUG_TEST_TIMEOUT=30
  for backend in pool arena:size=256M managed "$ALLOCATORS/example.so"; do
    rm -f "$log"
    with_shim "$backend" SIMCUDA_DEVICES=2 SIMCUDA_LOG="$log" collective.link 100
    skip_if_said
    assert_same "$backend" "status 0: collectives done: 100" "status $status: $output$stderr"
    [ "$CUPLUG_TEST_DRIVER" = sim ] || continue
    # Between the marks, whatever the driver would wait in, on the host or on the device.
    run awk '/^cuDriverGetVersion/ { inside = !inside; marks++; next }
      inside && /^cu(MemFree|MemFreeAsync|CtxSynchronize|StreamSynchronize|EventSynchronize|CtxWaitEvent|StreamWaitEvent|Memcpy)/
      END { print marks " marks" }' "$log"
    assert_same "$backend" "2 marks" "$output"
  done
}

@test "each device reads and writes the other's memory, allocated before and after peer access was enabled (C81)" {
  # Lost otherwise: NCCL, and every program that reaches over: a fault in its kernels.
  local backend
  assert_like_bare_driver SIMCUDA_DEVICES=2 peer.shared
  assert_equal "$(grep -c ': wrong bytes 0, on the wrong device 0$' <<<"$output")" 12
  for backend in $BACKENDS; do
    count "$backend" "$backend" SIMCUDA_DEVICES=2 peer.static
  done
}

@test "a block that the other device still works on comes to its next owner after that work, and so it is passed on (C81)" {
  # Lost otherwise: the next owner's data.
  local backend backends="${BACKENDS/direct /} $ALLOCATORS/example.so"
  [ -z "$QUICK" ] || backends=pool # which is slow to write so much
  for backend in $backends; do
    with_shim "$backend" SIMCUDA_DEVICES=2 peer_order.shared
    skip_if_said
    assert_success
    assert_equal "$backend: $(grep -c ': wrong bytes 0$' <<<"$output") of $(wc -l <<<"$output")" "$backend: 10 of 10"
  done
}
