# What the driver says of memory: of the program's allocations, not of what a backend cuts them from. The programs print codes and whether the answers
# fit, so that the bare driver is the measure (C35, C74, C76, C82, C83).

load helpers/load

@test "live memory: base, size and attributes are the allocation's, also inside it (C35, C76)" {
  # Lost otherwise: RDMA registration (UCX, NCCL), MPI: they register and send what these say.
  assert_says "malloc: wrong 0
async: wrong 0
pitched: wrong 0
managed: wrong 0
from pool: wrong 0" queries.link live
}

@test "what is no allocation is a stranger: past the end, freed, the host's (C82)" {
  # Lost otherwise: programs that tell device from host memory so, or whether something was freed.
  assert_like_bare_driver queries.link strangers
  assert_equal "$(grep -c '^freed.* range: 500 0 0; mark: 1; free: 1$' <<<"$output")" 4
  assert_equal "$(grep -cx 'the neighbours: yes yes' <<<"$output")" 2
}

@test "buffer ids are never used twice" {
  # Lost otherwise: registration caches, which tell by the id whether an address is still the same memory.
  assert_says "ids: 250, repeated 0, different inside 0" queries.link ids
}

@test "SYNC_MEMOPS is the allocation's own" {
  assert_like_bare_driver queries.link marks
  assert_line "malloc: new 0 0, set 1 0, taken back 0 1, of the next owner 0"
  [ "$CUPLUG_TEST_DRIVER" = sim ] || return 0
  # What one takes back stays with the memory that both are cut from: the other needs it. So of six calls the driver sees the four that set it.
  with_shim pool SIMCUDA_LOG="$BATS_TEST_TMPDIR/log" queries.link marks
  assert_equal "$(grep -c '^cuPointerSetAttribute ' "$BATS_TEST_TMPDIR/log")" 4
}

@test "handles for other devices: of live memory, page by page" {
  # Lost otherwise: GPUDirect by dma-buf; and freed memory would be handed to a network card.
  local bare
  BACKENDS=$(sed 's/ managed / /' <<<" $BACKENDS ") assert_like_bare_driver queries.link handles # of managed memory the driver makes none
  bare=$output
  assert_line "all: 0, handle made"
  assert_line "freed: 1, handle -1"
  with_shim managed queries.link handles
  assert_output "$(sed -E 's/0, handle made/1, handle -1/' <<<"$bare")"
}

@test "to ask is legal while a stream captures, and leaves the capture whole (C64)" {
  assert_like_bare_driver queries.link capture
  assert_equal "$(grep -c "the capture's end 0" <<<"$output")" 5
}

@test "answers stay right while other threads allocate and free" {
  local CUPLUG_TEST_TIMEOUT=180
  assert_says "wrong: 0" queries.link churn
}

@test "memory type, managed and what can be shared agree, whatever the backend (C74)" {
  # Lost otherwise: MPI, which takes the way that the answers promise, and fails.
  local backend kind
  for backend in $BACKENDS; do
    with_shim "$backend" queries.link share
    assert_success
    for kind in malloc async pitched managed "from pool"; do
      assert_equal "$(grep -cxF "$kind: device memory: yes, the host's too if managed: yes, shared as it says: yes, not if managed: yes" <<<"$output")" 2
    done
  done
  without_shim queries.link share
  refute_output --partial ": no"
}

@test "cudaPointerGetAttributes: host, pinned, registered, managed, device and freed pointers (C82)" {
  # Lost otherwise: every library that takes both kinds of pointer.
  local variant backend managed
  for variant in shared static; do
    BACKENDS=$(sed 's/ managed / /' <<<" $BACKENDS ") assert_like_bare_driver "pointers.$variant"
    assert_line "freed: cudaSuccess, unregistered, device -2, on the device NULL, on the host itself, pending cudaSuccess"
    managed=$(sed -E 's/^((device|device, inside|stream-ordered|with an error pending): cudaSuccess, )device(.*on the host )NULL/\1managed\3itself/' <<<"$output")
    with_shim managed "pointers.$variant"
    assert_same "pointers.$variant, managed" "$managed" "$output"
  done
}

@test "cuMemGetInfo: in order, and alike whichever results are asked for (C83)" {
  local backend
  for backend in $BACKENDS; do
    with_shim "$backend" queries.link info
    assert_output "$(yes 'info: 0 0 0 0; in order: yes, the same alone: yes' | head -4)"
    assert_equal "$stderr" ""
  done
}

@test "cuMemGetInfo: idle memory is free, and can be had; CUPLUG_MEMINFO=raw shows the driver's (C83)" {
  # Lost otherwise: programs that size their batches by it.
  needs_sim "takes most of a card"
  local backend
  for backend in direct pool managed:max=8G arena:size=100%; do
    with_shim "$backend" SIMCUDA_MEMORY=8G queries.link idle
    assert_output "free falls: yes, rises: yes, MiB free: 7168
all of it but 64 MiB: 0"
    with_shim "$backend" CUPLUG_MEMINFO=adjusted SIMCUDA_MEMORY=8G queries.link idle
    assert_line "free falls: yes, rises: yes, MiB free: 7168"
  done
  with_shim pool CUPLUG_MEMINFO=raw SIMCUDA_MEMORY=8G queries.link idle
  assert_line "free falls: yes, rises: yes, MiB free: 2048"
}

@test "memory that no backend serves is counted and named: cuMemCreate, arrays (C37)" {
  # Lost otherwise: the user's only hint that, say, expandable_segments takes its memory elsewhere.
  local backend
  assert_like_bare_driver queries.link others
  for backend in $BACKENDS; do
    count "$backend" "" queries.link others
    assert_equal "$stderr" ""
    with_shim "$backend" CUPLUG_REPORT=1 queries.link others
    grep -qxF "cuplug: 6291456 bytes via VMM, not routed (2 allocations)" <<<"$stderr" || fail "$stderr"
    grep -qxF "cuplug: 9510912 bytes in CUDA arrays, not routed (3 allocations)" <<<"$stderr" || fail "$stderr"
  done
  with_shim pool CUPLUG_REPORT=1 queries.link ids
  refute [ -z "$stderr" ]
  run grep "not routed" <<<"$stderr"
  assert_output ""
}

@test "the default pool shows the stream-ordered memory, whoever serves it" {
  # Lost otherwise: torch.cuda.memory_allocated() with backend:cudaMallocAsync, used_bytes() of CuPy's MemoryAsyncPool.
  assert_like_bare_driver default_pool.link figures
  assert_line "three blocks: in use 5243980, at most 5243980; as much reserved: yes, at most that: yes"
  assert_line "all freed: in use 0, at most 1100; as much reserved: yes, at most that: yes"
}

@test "the default pool's idle memory can be given back" {
  local expected="reserved for the next ones: yes
trimmed to more than there is: yes
trimmed: yes
afterwards: in use 1000, at most 268436456; as much reserved: yes, at most that: yes
the block in use: wrong bytes 0" backend
  for backend in direct pool managed; do
    with_shim "$backend" default_pool.link trim
    assert_output "$expected"
  done
  without_shim default_pool.link trim
  assert_output "$expected"
}

@test "a trim of the default pool keeps at least what it is told" {
  local BACKENDS="direct pool arena managed"
  assert_says "as much as said is kept: yes" default_pool.link some
}

@test "to trim the default pool waits for nobody" {
  # Lost otherwise: the program, which stands still.
  assert_says "finished: yes" default_pool.link busy
}

@test "the default pool set again changes nothing, one of the program's own serves what is its" {
  local backend
  assert_like_bare_driver default_pool.link set
  assert_line "from the current pool: yes yes yes"
  for backend in pool arena managed; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" default_pool.link set
    check_stats "backends.$backend.allocations=2" backends.direct.allocations=1 totals.live_blocks=0
  done
}

@test "access given to the default pool: the driver serves from then on" {
  assert_like_bare_driver default_pool.link access
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" default_pool.link access
  check_stats backends.pool.allocations=1 backends.direct.allocations=1 totals.live_blocks=0
}

@test "NULL for every result of every function: the driver's code" {
  # Lost otherwise: programs that leave out what they do not want to know.
  assert_like_bare_driver null_arguments.link
  assert_line "cuMemGetInfo_v2(&size, NULL): 0"
}
