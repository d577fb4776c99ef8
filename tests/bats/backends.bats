# What arena and managed promise beyond what every backend does: how much memory there is, where it lies, what it costs the driver.

load helpers/load

# calls SYMBOL [PATTERN]: how often the driver saw it (and the rest of the line matched).
calls() {
  grep -cE "^$1(_ptsz)? .*${2:-}" "$LOG" || true
}

setup() {
  LOG=$BATS_TEST_TMPDIR/driver.log
}

# quietly BACKEND …: with_shim, and it succeeds with nothing on stderr.
quietly() {
  with_shim "$@"
  skip_if_said
  assert_equal "$*: status $status: $stderr" "$*: status 0: "
}

FULL="all: CUDA_SUCCESS
the last byte is memory: yes
a byte more: CUDA_ERROR_OUT_OF_MEMORY
more than all: CUDA_ERROR_OUT_OF_MEMORY
the first bytes: CUDA_SUCCESS
all the rest: CUDA_SUCCESS
apart: yes
a byte more: CUDA_ERROR_OUT_OF_MEMORY
the first bytes again: CUDA_SUCCESS
all again: CUDA_SUCCESS"

@test "arena: exactly its size can be had, to the last byte, and no more although the device has more" {
  # Lost otherwise: the bound that the arena was chosen for, or memory inside it.
  local size
  for size in 2 5 8; do
    quietly "arena:size=${size}M" limits.link exact "$size"
    assert_output "$FULL"
  done
}

@test "arena: one allocation call to the driver, however the program goes on; nothing is given back" {
  needs_sim "reads the driver's log"
  quietly arena:size=64M SIMCUDA_LOG="$LOG" SIMCUDA_FAIL=cuMemAllocManaged:1-=2 limits.link grow
  assert_output "refused to somebody else: CUDA_ERROR_OUT_OF_MEMORY
again: CUDA_SUCCESS
wrong bytes: 0"
  assert_equal "$(calls cuMemAlloc_v2) $(calls cuMemAlloc_v2 'size=67108864 -> 0') $(calls cuMemFree_v2)" "1 1 0"
  # The same program with a backend that does give back, so that the line above can fail.
  rm "$LOG"
  quietly pool SIMCUDA_LOG="$LOG" SIMCUDA_FAIL=cuMemAllocManaged:1-=2 limits.link grow
  [ "$(calls cuMemFree_v2)" -ge 1 ]
}

@test "arena: threads that come first at the same moment share one reservation" {
  # Lost otherwise: twice the memory, or one thread's first allocation.
  needs_sim "slows the driver down and reads its log"
  quietly arena:size=8M SIMCUDA_LOG="$LOG" SIMCUDA_DELAY=cuMemAlloc_v2=30000 limits.link first
  assert_output "all served"
  assert_equal "$(calls cuMemAlloc_v2)" 1
}

@test "arena: a percentage is of what the device has free; a size is what it says" {
  needs_sim "needs a device of a known size"
  quietly arena:size=25% SIMCUDA_MEMORY=1G SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemAlloc_v2)" 1
  assert_equal "$(calls cuMemAlloc_v2 'size=26[0-9]{7} -> 0')" 1 # 256 MiB less what the context has
  rm "$LOG"
  quietly arena:size=300M SIMCUDA_MEMORY=1G SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemAlloc_v2 'size=314572800 -> 0')" 1
}

@test "arena: more than the device has: one line, then out of memory" {
  needs_sim "a card cannot be filled on a machine shared with others"
  with_shim arena:size=2G SIMCUDA_MEMORY=1G limits.link until 8
  assert_success
  assert_output "blocks: 0"
  [[ $stderr == "cuplug: arena:size=2G: device 0 cannot reserve 2048 MiB ("*" MiB are free); allocations fail there" ]] || fail "$stderr"
  with_shim arena:size=1% SIMCUDA_MEMORY=100M limits.link until 8
  assert_output "blocks: 0"
  assert_equal "$(wc -l <<<"$stderr")" 1
}

@test "cuMemGetInfo: what is said to be free can be had: arena, managed (C83)" {
  # Lost otherwise: programs that size their batches by it, and run out of memory.
  local backend
  for backend in arena:size=64M managed:max=64M; do
    quietly "$backend" limits.link info
    assert_output "MiB free at first: 64; the total is the device's: yes
all of it: CUDA_SUCCESS
MiB free then: 0
free again: yes"
  done
}

@test "blocks of a full arena come back in order, as from the pool (C49)" {
  # Lost otherwise: data, where the tests of order.bats find so much room in the arena that nothing is used twice.
  local name
  local BACKENDS="arena:size=160M"
  assert_says "crowd: old kernel done before new owner's write: yes" free_waits_for_kernel.shared crowd
  BACKENDS="arena:size=4M"
  for name in non-blocking legacy per-thread exited-thread behind-event; do
    assert_says "$name: old kernel done before new owner's write: yes" free_waits_for_kernel.shared "$name"
  done
  BACKENDS="arena:size=2M"
  assert_says "recycled blocks: 1000, wrong: 0" recycled_blocks.shared 1000
  assert_says "recycled blocks: 1000, wrong: 0" recycled_blocks.ptds 1000
  assert_says "threads with streams of their own: wrong blocks 0" thread_streams.ptds
  quietly arena:size=4M stress.shared 100
  assert_line "blocks: 1600, wrong: 0"
}

@test "a full arena does not order new work behind a kernel launched after the free" {
  # Lost otherwise: the program, which hangs.
  local BACKENDS="arena:size=4M"
  assert_says "finished: yes" persistent_kernel.link wait-value 1024
}

@test "a full arena serves what fits off a page rather than wait for the device" {
  # Lost otherwise: the program, where the running kernel waits for what comes after the allocation; else the kernel's time.
  local BACKENDS="arena:size=8M"
  assert_says "finished: yes" limits.link hole
}

@test "managed: blocks are reused once their old work is done, never behind a wait on the device" {
  # Lost otherwise: what the host writes into a new block while the last owner's kernel still runs.
  quietly managed CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" free_waits_for_kernel.shared crowd
  assert_output "crowd: old kernel done before new owner's write: yes"
  check_stats backends.managed.allocations=48 totals.waits=0 totals.fences">="1
}

@test "managed: sixteen blocks of 256 MiB on a device of 1 GiB (C91)" {
  needs_sim "managed memory stays below the card's on a machine shared with others"
  with_shim direct SIMCUDA_MEMORY=1G limits.link oversubscribe
  assert_failure
  quietly managed SIMCUDA_MEMORY=1G limits.link oversubscribe
  assert_output "blocks: 16, wrong: 0"
}

@test "managed: sizes beyond device and host together are refused, and a program that takes all it gets comes to an end (C93)" {
  # Lost otherwise: programs that look for the largest size, or for all there is.
  needs_sim "over-sized requests only here"
  local bytes
  for bytes in $((1 << 40)) $((1 << 46)) $((1 << 62)); do
    quietly managed SIMCUDA_MEMORY=1G SIMCUDA_LOG="$LOG" limits.link probe "$bytes"
    assert_output "one: CUDA_ERROR_OUT_OF_MEMORY
the probing ended: yes"
  done
  assert_equal "$(calls cuMemAllocManaged 'size=[0-9]{13,}')" 0
  with_shim managed SIMCUDA_MEMORY=16G limits.link probe $((64 << 30))
  assert_line "the probing ended: yes"
}

@test "managed: max= bounds all allocations together, and all of it can be had" {
  needs_sim "counts the driver's calls"
  quietly managed:max=64M limits.link until 8
  assert_output "blocks: 8"
  quietly managed:max=64M limits.link until 64
  assert_output "blocks: 1"
  quietly managed:max=64M limits.link until 65
  assert_output "blocks: 0"
  quietly managed:max=10% SIMCUDA_MEMORY=1G limits.link until 65536
  assert_output "blocks: 0"
}

@test "managed: the bytes of a context that went away count no more" {
  quietly managed:max=16M context_reset.shared
  assert_line "lived three times"
}

@test "pointers are what the driver says: managed only with managed (C74)" {
  local backend yes="managed: yes, device memory: yes, both ways: yes" no="managed: no, device memory: yes, both ways: yes"
  for backend in direct pool arena:size=16M; do
    quietly "$backend" limits.link attributes
    assert_output "$no
$no"
  done
  quietly managed limits.link attributes
  assert_output "$yes
$yes"
}

@test "managed: advice and prefetching are as the options say" {
  # Lost otherwise: speed, by pages on the wrong side.
  needs_sim "reads the driver's log"
  local preferred_device='advice=3 location=1:0 -> 0' preferred_host='advice=3 location=2:0 -> 0' accessed='advice=5 location=1:0 -> 0'
  quietly managed SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemAdvise_v2 "$preferred_device") $(calls cuMemAdvise_v2 "$accessed") $(calls 'cuMem(Advise|Prefetch).*')" "1 1 2"
  rm "$LOG"
  quietly managed:preferred=host,accessed=none SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemAdvise_v2 "$preferred_host") $(calls 'cuMem(Advise|Prefetch).*')" "1 1"
  rm "$LOG"
  quietly managed:preferred=none,accessed=none SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemAllocManaged) $(calls 'cuMem(Advise|Prefetch).*')" "1 0"
  rm "$LOG"
  quietly managed:prefetch=1 SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemPrefetchAsync_v2 '-> 0')" 1
  # More than the device has is not moved there (C93).
  rm "$LOG"
  quietly managed:prefetch=1 SIMCUDA_LOG="$LOG" SIMCUDA_MEMORY=64M limits.link until 512
  [ "$(calls cuMemAllocManaged)" -ge 1 ]
  assert_equal "$(calls cuMemPrefetchAsync_v2)" 0
  # Drivers before 12.2 name places otherwise.
  rm "$LOG"
  quietly managed:preferred=host,prefetch=1 SIMCUDA_DRIVER=11080 SIMCUDA_LOG="$LOG" limits.link live
  assert_equal "$(calls cuMemAdvise 'advice=3 device=-1 -> 0') $(calls cuMemAdvise 'advice=5 device=0 -> 0') $(calls cuMemPrefetchAsync '-> 0')" "1 1 1"
}

@test "managed: what was freed and serves again is neither advised nor prefetched again" {
  needs_sim "reads the driver's log"
  quietly managed:prefetch=1 SIMCUDA_LOG="$LOG" recycled_blocks.shared 200
  assert_output "recycled blocks: 200, wrong: 0"
  assert_equal "$(calls cuMemPrefetchAsync_v2)" "$(calls cuMemAllocManaged)"
  [ "$(calls cuMemAllocManaged)" -le 20 ]
}

@test "managed: a driver that takes no advice still gives memory, and the program sees no error" {
  needs_sim "makes the driver fail"
  quietly managed:prefetch=1 SIMCUDA_FAIL=cuMemAdvise_v2:1-=101,cuMemPrefetchAsync_v2:1-=801 out_of_memory.shared earlier
  without_shim out_of_memory.shared earlier
  local expected=$output
  with_shim managed:prefetch=1 SIMCUDA_FAIL=cuMemAdvise_v2:1-=101,cuMemPrefetchAsync_v2:1-=801 out_of_memory.shared earlier
  assert_output "$expected"
}

@test "a segment made while a stream captures: nothing of ours in the graph" {
  # Lost otherwise: the capture, or a graph that moves memory at each launch.
  local BACKENDS="$BACKENDS managed:prefetch=1"
  assert_says "allocated: CUDA_SUCCESS
captured: CUDA_SUCCESS
nodes: 1, wrong bytes: 0" limits.link capture
  BACKENDS=managed:prefetch=1
  assert_says "captures spoiled: 0" capture_race.shared 200
}

@test "managed without concurrent access: direct serves, with one line; force=1 insists; CUPLUG_STRICT=1 fails" {
  # Lost otherwise: the program, by a crash of the host code that touches memory while the device works.
  needs_sim "needs such a device"
  with_shim managed SIMCUDA_MANAGED=basic SIMCUDA_LOG="$LOG" runtime_kinds.shared malloc
  assert_success
  assert_line "malloc: right"
  assert_equal "$stderr" "cuplug: managed: device 0 has no concurrent managed access; using direct there (managed:force=1 insists)"
  assert_equal "$(calls cuMemAllocManaged) $([ "$(calls cuMemAlloc_v2)" -ge 4 ] && echo direct)" "0 direct"
  count "managed:force=1" managed SIMCUDA_MANAGED=basic runtime_kinds.shared malloc
  with_shim managed CUPLUG_STRICT=1 SIMCUDA_MANAGED=basic limits.link until 8
  assert_output "blocks: 0"
  assert_equal "$stderr" "cuplug: managed: device 0 has no concurrent managed access; allocations will fail (managed:force=1 insists)"
}

@test "managed without concurrent access: counted as direct" {
  needs_sim "needs such a device"
  local kind
  for kind in malloc async pitch malloc_freed_async async_freed_sync; do
    with_shim managed SIMCUDA_MANAGED=basic CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.$kind" runtime_kinds.static "$kind"
    assert_line "$kind: right"
    "$PYTHON" "$STATS" "$BATS_TEST_TMPDIR/stats.$kind" backends.direct.allocations=4 totals.live_blocks=0 totals.frees=4
  done
}

@test "sizes around every granule: each block has its own bytes, and the search for it ends (C43, C45)" {
  local backend BACKENDS="$BACKENDS pool:reuse=completed arena:size=64M"
  assert_says "sizes: 32, wrong: 0" limits.link granule
}

@test "blocks that the program aligns up itself hold what it counted on (C47)" {
  assert_says "wrong bytes: 0" limits.link align
}

@test "CUPLUG_STRICT=1: after a refused option nothing is handed out, whatever is asked for" {
  # Lost otherwise: the certainty that a run had the memory it was meant to have.
  local kind backend first
  for backend in pol pool:most=1G; do
    for kind in malloc async pitch 3d managed from_pool; do
      with_shim "$backend" CUPLUG_STRICT=1 runtime_kinds.shared "$kind"
      assert_failure
      first=$(sed -n 2p <<<"$stderr") # the program ends at the first call that fails
      [[ $stderr == *"; allocations will fail"* && $first == *": cudaMalloc"*": cudaErrorMemoryAllocation" ]] || fail "$backend, $kind: $stderr"
    done
  done
}
