# Device memory shared between processes by CUDA IPC: the importer gets the allocation, not the segment around it.

load helpers/load

@test "an importer reads and writes the exporter's blocks, opened twice, closed, and freed under it (C70, C79, C80)" {
  # Lost otherwise: data, in whoever's memory the importer believes to be its own.
  local expected backend program file importers
  without_shim ipc.shared
  assert_success
  expected=$output
  assert_line "importer: wrong bytes 0, blocks at another's address 0"
  assert_line "allocated inside what is open: no" # which it has tried to free
  for backend in direct pool arena "$ALLOCATORS/plain.so"; do
    for program in ipc.shared ipc.static; do
      rm -f "$BATS_TEST_TMPDIR"/stats.*
      with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" $program
      assert_same "$program ($backend)" "status 0: $expected" "status $status: $output$stderr"
      importers=0 # whose only allocations are its own four
      for file in "$BATS_TEST_TMPDIR"/stats.*; do
        "$PYTHON" "$STATS" "$file" totals.allocations=4 totals.frees=4 totals.live_blocks=0 >/dev/null && importers=$((importers + 1))
      done
      assert_equal "$program ($backend): $importers" "$program ($backend): 1"
    done
  done
}

@test "an importer without the shim is told that it is no handle, instead of being given another's memory" {
  # Lost otherwise: data, without a word.
  with_shim pool ipc.shared "$SANITIZER"
  assert_success
  assert_line --regexp "^open: cudaError(InvalidResourceHandle|InvalidValue)$"
  assert_line "importer ended: 0"
}

@test "an importer under another backend opens what the pool shares, and the reverse" {
  local backend
  for backend in direct pool arena; do
    with_shim "$backend" ipc.shared "$(preload)"
    assert_success
    assert_line "importer: wrong bytes 0, blocks at another's address 0"
  done
}

@test "managed memory, memory of a pool (ours or a library's) and CUPLUG_IPC=refuse: no handle, one line (C72, C73)" {
  # Lost otherwise: the reason why a transfer is slow.
  local backend
  for backend in managed async "$ALLOCATORS/pooled.so"; do
    with_shim "$backend" ipc.shared
    assert_success
    assert_output "handle: cudaErrorInvalidValue"
    assert_equal "$(wc -l <<<"$stderr")" 1
    [[ $stderr == "cuplug: cuIpcGetMemHandle: refused: the driver shares no memory of this backend's kind "* ]] || fail "$stderr"
  done
  with_shim pool CUPLUG_IPC=refuse ipc.shared
  assert_success
  assert_output "handle: cudaErrorInvalidValue"
  assert_equal "$(wc -l <<<"$stderr")" 1
  [[ $stderr == "cuplug: cuIpcGetMemHandle: refused: CUPLUG_IPC=refuse; "* ]]
}

@test "a handle opened in contexts of two devices: what is closed in one stays open in the other; a device's second context is refused as without cuplug" {
  local BACKENDS="direct pool arena"
  assert_like_bare_driver SIMCUDA_DEVICES=2 ipc_corners.link contexts
  [ "$CUPLUG_TEST_DRIVER" = gpu ] || assert_line "the other's data: 7" # the real driver's answer is its own
}

@test "free=wait: the free of a shared block waits, too" {
  local BACKENDS="direct pool:free=wait"
  assert_says "work done when cuMemFree returned: yes" ipc_corners.link free
}
