# Frees of every sort of pointer, from every sort of place: the codes are CUDA's, memory goes back to where it came from.

load helpers/load

@test "pointers that nobody tracked are freed by the driver, or refused with its code (C24)" {
  # Lost otherwise: the memory (leaked) and the program's error handling (codes that CUDA does not have).
  local BACKENDS="direct pool arena managed:max=512M async"
  assert_like_bare_driver CUPLUG_DEEPBIND=ignore SIMCUDA_MEMORY=512M free_unknown.link "$PROGRAMS/bypass.so"
}

@test "frees with another device current go to the memory's device (C28)" {
  # Lost otherwise: figures per device that drift, blocks in the wrong device's pool, or in none.
  local backend settings=(SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=96M) BACKENDS="direct pool arena managed:max=96M async"
  assert_like_bare_driver "${settings[@]}" two_devices.shared
  assert_line "blocks on the wrong device: 0"
  for backend in $BACKENDS; do
    count "$backend" "$backend" "${settings[@]}" two_devices.shared
    check_stats devices.0.live_blocks=0 devices.1.live_blocks=0 devices.0.allocations=1500 devices.0.frees=1500 \
      devices.1.allocations=500 devices.1.frees=500 devices.0.live_bytes=0 devices.1.live_bytes=0
  done
}

@test "a thread without a context gets the driver's codes, and nothing is counted that did not happen (C29)" {
  # Lost otherwise: worker threads, by a crash on a device number that was never filled in.
  local backend
  assert_like_bare_driver no_context.link
  for backend in $BACKENDS; do
    count "$backend" "$backend" no_context.link
  done
}

@test "a thread without a context: no invalid memory access (C29)" {
  needs_sim "valgrind does not know the real driver"
  needs_plain_build "valgrind and sanitizers exclude each other"
  needs_own_processor "valgrind is this machine's"
  command -v valgrind >/dev/null || skip "no valgrind"
  local backend BACKENDS="direct pool arena:size=64M managed" # valgrind takes minutes over half a device
  for backend in $BACKENDS; do
    run timeout 100 env LD_LIBRARY_PATH="$DRIVER_PATH" LD_PRELOAD="$SHIM" CUPLUG_BACKEND="$backend" \
      valgrind -q --error-exitcode=9 "$PROGRAMS/no_context.link"
    assert_success
    refute_output --partial "=="
  done
}

@test "a second free is refused, and no two owners share memory afterwards (C32)" {
  # Lost otherwise: data of whoever gets the block that was freed twice.
  local backend
  assert_like_bare_driver double_free.shared
  refute_output --partial "two owners differ: no"
  for backend in $BACKENDS; do
    count "$backend" "$backend" double_free.shared
    check_stats totals.reserved_bytes">="0
  done
}

# The fake driver holds one thread inside a call until another thread's own calls have returned.
rendezvous() {
  local DRIVER_PATH=$FAKE
  [ "$CUPLUG_TEST_DRIVER" = sim ] || skip "about a fake driver, no GPU needed"
  with_shim "$1" FAKE_MEMORY="$4" FAKE_BLOCK="$3" rendezvous.link "$2"
  assert_success
  assert_line "held in the driver: yes"
  assert_line "gave up waiting: 0"
}

@test "no lock is held while the driver allocates (C60)" {
  # Lost otherwise: the program, when a driver call of one thread waits for another thread.
  rendezvous direct alloc cuMemAlloc_v2 $((128 << 20))
  rendezvous pool alloc cuMemAlloc_v2 $((128 << 20))
  rendezvous managed:force=1,max=128M alloc cuMemAllocManaged $((128 << 20))
}

@test "no lock is held while the driver frees (C60)" {
  rendezvous direct free cuMemFree_v2 $((128 << 20))
}

@test "no lock is held while freed blocks are given back to the driver (C60)" {
  rendezvous pool trim cuMemFree_v2 $((64 << 20))
  rendezvous managed:force=1,max=128M trim cuMemFree_v2 $((64 << 20))
}
