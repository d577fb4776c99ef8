# Stream capture: the driver forbids some calls meanwhile, and spoils the capture when they come. The shim must add none.

load helpers/load

@test "captures end as on the bare driver, whoever allocates meanwhile: direct (C64)" {
  # Lost otherwise: every program that captures graphs (PyTorch's CUDA graphs, JAX).
  without_shim capture.shared
  assert_success
  local expected=$output
  with_shim direct capture.shared
  assert_success
  assert_output "$expected"
}

@test "captures end as on the bare driver or better: pool, arena, managed, libraries (C64)" {
  local variant backend expected
  for variant in shared static ptds; do
    without_shim "capture.$variant"
    assert_success
    expected=$output
    for backend in ${BACKENDS/direct /}; do
      with_shim "$backend" "capture.$variant"
      assert_equal "$backend: $status $stderr" "$backend: 0 "
      assert_nothing_spoiled "$expected" "$output"
      refute_output --partial "replay wrong"
    done
  done
}

@test "no capture is spoiled while other threads allocate and free (C64)" {
  # Lost otherwise: a training run, now and then, with an error that points nowhere.
  local expected="captures spoiled: 0"
  assert_says "$expected" capture_race.shared 800
  assert_says "$expected" capture_race.static-ptds 400
}

@test "memory allocated in a capture is the graph's: its nodes, a thousand launches, and no leak of anybody's (C67)" {
  # Lost otherwise: memory with each launch, or its data.
  local backend variant
  for variant in shared static ptds; do
    assert_like_bare_driver "graph_memory.$variant"
  done
  assert_line "nodes: 1 that allocate, 1 that free"
  assert_line "wrong launches: 0, wrong bytes after the last: 0"
  assert_line "takes no more memory: yes"
  for backend in $BACKENDS; do
    count "$backend" "$backend" graph_memory.shared
    check_stats totals.lost_blocks=0
  done
}

# assert_relaxed LOG: of what was called while the program's allocation was under way, whatever frees, queries or waits was called in relaxed mode, which was then
# left again; nothing was recorded, and no default stream touched.
assert_relaxed() {
  run awk '
    /^cuDriverGetVersion/ { inside = !inside; if (!inside && exchanged % 2) print "mode not restored"; exchanged = 0; next }
    !inside { next }
    /^cuThreadExchangeStreamCaptureMode/ { exchanged++ }
    /^cu(MemFree|EventQuery|EventSynchronize|EventCreate)|^cuMemAlloc_v2 size=1 / && exchanged % 2 == 0 { print "not in relaxed mode: " $0 }
    /^cu(Ctx|Stream)Synchronize|^cuEventRecord|^cuCtx(Record|Wait)Event|^cuStream.* stream=([(]nil[)]|0x[012]) / { print "called: " $0 }
    { calls++ }
    END { if (!calls) print "nothing was called" }' "$1"
  assert_output ""
}

@test "a full device while a stream captures: served or out of memory, and the capture lives (C65)" {
  # Lost otherwise: the capture, when what a cache holds is given back in its midst.
  needs_sim "a card cannot be filled on a machine shared with others"
  local backend log=$BATS_TEST_TMPDIR/log
  for backend in pool managed:max=256M arena:size=200M "$ALLOCATORS/example.so" "$ALLOCATORS/plain.so"; do
    rm -f "$log"
    with_shim "$backend" SIMCUDA_MEMORY=256M SIMCUDA_LOG="$log" capture_full.link full
    assert_equal "$backend: status $status: $stderr" "$backend: status 0: "
    assert_equal "$backend: $(grep -cE "^(pieces|all freed): .*: (served|out of memory), mode kept: yes; the capture's end: 0, replayed right: yes\$" <<<"$output")" \
      "$backend: 16"
    [[ $backend == *.so ]] || assert_equal "$backend: $(grep -c 'out of memory' <<<"$output")" "$backend: 8" # the pieces
    assert_relaxed "$log"
  done
}

@test "a cache that grows beside a capture does so in relaxed mode and restores the thread's own, also when it fails (C69)" {
  # Lost otherwise: the capture of one thread by another's allocation, or a thread's mode.
  local backend log=$BATS_TEST_TMPDIR/log memory what
  for backend in ${BACKENDS/direct /}; do
    [[ $backend != managed:* ]] || backend=managed:max=1G # it takes 672 MiB
    for memory in 16G 64M; do
      [ "$CUPLUG_TEST_DRIVER" = sim ] || [ $memory = 16G ] || continue
      what=$([ $memory = 16G ] && echo served || echo "out of memory")
      [[ $backend != managed* ]] || what="served"
      rm -f "$log"
      with_shim "$backend" SIMCUDA_MEMORY=$memory SIMCUDA_LOG="$log" capture_full.link grow
      assert_equal "$backend: status $status: $stderr" "$backend: status 0: "
      assert_equal "$backend: $(grep -c ", in stream order: $what, mode kept: yes; the capture's end: 0, replayed right: yes\$" <<<"$output")" "$backend: 6"
      [ "$CUPLUG_TEST_DRIVER" = gpu ] || assert_relaxed "$log"
    done
  done
}
