# What goes wrong in the driver: the program gets the driver's codes, and whatever fails on the way, nothing is lost.

load helpers/load

setup() {
  FAILURES="direct pool pool:source=vmm arena:size=64M managed:force=1 async $ALLOCATORS/example.so $ALLOCATORS/example.so:keep=1 $ALLOCATORS/passing.so"
  [[ $SANITIZER != *libtsan* ]] || FAILURES="pool async" # one thread makes the failures, so the others are for other builds
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
    assert_equal "$(grep -c ': right$' <<<"$output")" 11
    [[ $stderr =~ failures:\ [0-9]{3} ]] || fail "$stderr" # hundreds: the shim's own calls are among them
  done
}

@test "ten thousand rounds of one failure leave nothing behind, on the device or the host (C27)" {
  needs_sim "makes the driver fail"
  needs_plain_build "they keep memory that was freed"
  local backend item
  for backend in $FAILURES; do
    for item in cuMemFree_v2:1-=1 cuCtxRecordEvent:1-=2,cuEventRecord:1-=2,cuMemAdvise_v2:1-=1 cuEventCreate:1-=801 cuStreamGetId:1-=1; do
      [[ ($backend == direct || $backend == async) && $item == cuMemFree* ]] && continue # what the driver does not free stays, without the shim, too
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

@test "the runtime keeps the error that a call returned, once, and none of what was tried on the way (C86)" {
  # Lost otherwise: programs that look at cudaGetLastError after a launch, and find an error that nobody made.
  needs_sim "makes the driver fail"
  local backend program
  for program in failures_runtime.shared failures_runtime.static failures_runtime.ptds; do
    without_shim SIMCUDA_MEMORY=96M "$program"
    assert_success
    for backend in $FAILURES; do
      with_shim "$backend" SIMCUDA_MEMORY=96M "$program"
      assert_equal "$program, $backend: $output" "$program, $backend: no earlier error: right
an earlier error: right"
    done
  done
}

@test "every kind of allocation can be freed in the ways that CUDA allows, once, and is counted out (C59)" {
  # Lost otherwise: memory of programs that mix the runtime's, the driver's and the stream-ordered functions.
  local backend program
  for program in pairs.shared pairs.static; do
    assert_like_bare_driver "$program"
    assert_equal "$(grep -c ', again ' <<<"$output")" 24
    for backend in $BACKENDS; do
      count "$backend" "" "$program"
    done
  done
}

@test "memory that a graph's launch allocated is the program's to free, by every free, and the driver sees one (C25)" {
  local backend log=$BATS_TEST_TMPDIR/log
  assert_like_bare_driver pairs.shared graph
  assert_equal "$(grep -c 'wrong bytes: 0; graph, .*: 0, again 1, then cudaFree 1$' <<<"$output")" 4
  [ "$CUPLUG_TEST_DRIVER" = sim ] || return 0
  for backend in $BACKENDS; do
    rm -f "$log"
    with_shim "$backend" SIMCUDA_LOG="$log" pairs.shared graph
    assert_equal "$backend: $(grep -cE '^cuMemFree.* -> 0' "$log")" "$backend: 4"
  done
}

@test "memory runs out: the code of out of memory in every kind of call, and nothing worse (C38)" {
  # Lost otherwise: programs that ask for less and go on.
  needs_sim "a card cannot be filled on a machine shared with others"
  local backend kind expected=
  for kind in malloc small async "from pool" pitch 3d malloc small async "from pool" pitch 3d; do
    expected+="$kind: cudaErrorMemoryAllocation, some: yes, all freed: cudaSuccess, last error: cudaErrorMemoryAllocation
"
  done
  without_shim SIMCUDA_MEMORY=256M exhausted.shared
  assert_same "bare driver" "$expected" "$output
"
  for backend in direct pool pool:reuse=completed arena:size=128M managed:force=1,max=128M "$ALLOCATORS/example.so" "$ALLOCATORS/plain.so"; do
    for program in exhausted.shared exhausted.static; do
      with_shim "$backend" SIMCUDA_MEMORY=256M "$program"
      assert_same "$backend" "$expected" "$output
"
      assert_success
    done
  done
}

@test "the library calls nothing that ends the process (C38)" {
  needs_plain_build "their runtimes do"
  run nm -D --undefined-only "$SHIM"
  assert_success
  assert_output --partial ' getenv@'
  refute_output --regexp ' (abort|exit|_exit|_Exit|quick_exit|__assert_fail|__assert|raise|kill|tgkill|pthread_kill|pthread_exit|std::terminate)(@|$)'
}

@test "a library with a mutex of its own around virtual memory calls of two threads (C23)" {
  # Lost otherwise: NCCL's start, which hangs.
  local CUPLUG_TEST_TIMEOUT=20
  assert_says "failed: 0" plugin_host 2 "$PROGRAMS/locked_vmm.so"
}

@test "CUPLUG_DISABLE=1: the driver sees the very calls that it sees without the library (C23)" {
  needs_sim "reads the driver's log"
  local native=$BATS_TEST_TMPDIR/native log=$BATS_TEST_TMPDIR/disabled program
  for program in "plugin_host 1 $PROGRAMS/locked_vmm.so" runtime_kinds.shared runtime_kinds.static context_reset.shared double_free.shared "driver_kinds.getproc2 async" \
    "driver_kinds.dlsym pitch"; do
    rm -f "$native" "$log"
    # shellcheck disable=SC2086
    without_shim SIMCUDA_LOG="$native" $program
    # shellcheck disable=SC2086
    with_shim pool CUPLUG_DISABLE=1 SIMCUDA_LOG="$log" $program
    assert_equal "$(sed 's/0x[0-9a-f]*/address/g' "$native" | cksum)" "$(sed 's/0x[0-9a-f]*/address/g' "$log" | cksum)"
    [ "$(wc -l <"$native")" -ge 5 ]
  done
}

@test "an address that the driver cannot be asked about is not taken for one that it does not have" {
  # Lost otherwise: a plugin's memory, one block with each allocation after a device reset.
  needs_sim "makes the driver fail"
  without_shim context_reset.shared
  local expected=$output
  with_shim "$ALLOCATORS/plain.so" SIMCUDA_FAIL=cuMemGetAddressRange_v2:1-=999 context_reset.shared
  assert_equal "$stderr" ""
  assert_output "$expected"
}

@test "a fault in one context is not blamed on another" {
  # Lost otherwise: the work of a context that is sound.
  needs_sim "a fault on demand"
  assert_like_bare_driver fault_elsewhere.link
}
