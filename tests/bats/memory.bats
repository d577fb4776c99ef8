# Running short of memory: what was freed is given back before anything fails, and errors are seen exactly once.

load helpers/load

short_of_memory() {
  local BACKENDS="direct pool arena:size=100% managed"
  needs_sim "a card cannot be filled on a machine shared with others"
  assert_like_bare_driver SIMCUDA_MEMORY=256M "$@"
}

@test "one large request gets the memory of many freed blocks, and leaves no error behind (C86)" {
  # Lost otherwise: the program, which takes a stale error for its own.
  short_of_memory out_of_memory.shared retry
  assert_line "large: cudaSuccess, pointer set, pending cudaSuccess"
  assert_line "large from a new place: cudaSuccess, pointer set, pending cudaSuccess"
  short_of_memory out_of_memory.static retry
}

@test "the same in stream order (C86)" {
  short_of_memory out_of_memory.shared async
  assert_line "large: cudaSuccess, pointer set, pending cudaSuccess"
}

@test "an error that the program has not read yet survives (C86)" {
  short_of_memory out_of_memory.shared earlier
  refute_output --partial "first read: cudaSuccess"
}

@test "a request that nobody can serve fails once, with one pending error (C86)" {
  # Lost otherwise: programs that shrink their batch on out of memory and go on.
  assert_like_bare_driver out_of_memory.shared real
  assert_like_bare_driver out_of_memory.static real
  assert_like_bare_driver out_of_memory.ptds real
}

@test "memory taken to the last piece fails as out of memory, and can be taken again" {
  short_of_memory out_of_memory.shared exhaust
}

@test "an allocation that the driver refuses once is tried again (C86)" {
  needs_sim "makes the driver fail"
  local backend
  for backend in pool; do
    with_shim "$backend" SIMCUDA_MEMORY=256M SIMCUDA_FAIL=cuMemAlloc_v2:4=2 out_of_memory.shared retry
    assert_success
    assert_line "large: cudaSuccess, pointer set, pending cudaSuccess"
    refute_output --regexp "wrong bytes: [1-9]"
  done
}

@test "few freed bytes, of which no record was made, are given back as well before another allocation fails" {
  # Lost otherwise: managed memory, pools and pitched memory of the program's own, for want of what a cache holds idle.
  needs_sim "makes the driver fail"
  with_shim pool SIMCUDA_FAIL=cuMemAllocManaged:1=2 out_of_memory.shared managed
  assert_line "managed: cudaSuccess, pointer set, pending cudaSuccess"
  assert_line "managed freed: cudaSuccess, pointer NULL, pending cudaSuccess"
}
