# Streams that share memory, by whatever names, and streams that come and go: a block goes on only behind all work of its last owner, and it does go on.

load helpers/load

@test "two threads' streams are kept apart by whatever name: 0, 1, 2, plain and per-thread entry points (C50)" {
  # Lost otherwise: one thread's data, when its stream is taken for another's of the same handle.
  assert_says "two threads' handles: wrong pairs 0
a thread's handles and the next one's: wrong pairs 0" thread_handles.link
}

@test "threads with default streams of their own are kept apart (C50)" {
  assert_says "threads with streams of their own: wrong blocks 0" thread_streams.ptds
  assert_says "threads with streams of their own: wrong blocks 0" thread_streams.shared
}

CHAIN="freed by cuMemFree, passed on by the second stream: wrong bytes 0
freed in stream order, passed on by the second stream: wrong bytes 0
freed by cuMemFree, used by the second stream: wrong bytes 0
freed in stream order, used by the second stream: wrong bytes 0"

@test "a block that a second stream passes on, merged or not, stays behind the first one's work (C52)" {
  # Lost otherwise: the third owner's data, when the second one's part in it is all that is remembered.
  assert_says "$CHAIN" stream_chain.link merge
}

@test "the same where memory is short, so that what is freed has to go on (C52)" {
  needs_sim "memory of a given size"
  local BACKENDS="direct pool arena:size=100% managed:max=64M async $ALLOCATORS/example.so $ALLOCATORS/plain.so"
  assert_says "$CHAIN" SIMCUDA_MEMORY=64M stream_chain.link equal
}

@test "the same by the driver's log: each later write waits for the earlier one of the same bytes (C52)" {
  # Lost otherwise: the tests above, to a machine on which the late write happens to come early.
  needs_sim "reads the simulated driver's log"
  local backend
  for backend in pool pool:reuse=completed managed "$ALLOCATORS/plain.so"; do
    rm -f "$BATS_TEST_TMPDIR/log"
    with_shim "$backend" SIMCUDA_LOG="$BATS_TEST_TMPDIR/log" stream_chain.link merge
    assert_success
    run "$PYTHON" "$ROOT/tests/bats/helpers/ordered.py" "$BATS_TEST_TMPDIR/log"
    [[ $output =~ ^pairs:\ [1-9][0-9]*,\ not\ ordered:\ 0$ ]] || fail "$backend: $output"
  done
}

@test "streams destroyed with frees pending give their memory back (C54)" {
  # Lost otherwise: memory of streams that are gone, or a crash on their handles.
  assert_says "after 200 destroyed streams: wrong bytes 0
last error: cudaSuccess" stream_destroyed.shared 200
}

@test "a thousand streams destroyed: one block of all their bytes can be had, without new memory (C54)" {
  # Lost otherwise: the memory of streams that are gone, a little with each.
  local backend
  assert_says "one block of all the bytes: wrong 0" streams_gone.link
  for backend in pool arena:size=36M managed; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" streams_gone.link
    assert_equal "$backend: $output" "$backend: one block of all the bytes: wrong 0"
    check_stats totals.allocations=1002 totals.peak_reserved_bytes"<=$((36 << 20))" || fail "$backend: see above"
  done
}

@test "a stream with the handle of one that was made to wait is not taken for it (driver 11.8: handles are all that tells streams apart)" {
  # Lost otherwise: data, to the stream that the memory comes from.
  needs_sim "an old driver"
  with_shim pool SIMCUDA_DRIVER=11080 discipline.link follower
  assert_line "wrong bytes: 0"
}

@test "a stream with the handle of one that ended with its green context is not taken for it" {
  # Lost otherwise: data, to a stream that is gone and whose work goes on.
  needs_sim "a driver that gives the handle away at once"
  with_shim pool discipline.link green
  assert_line "wrong bytes: 0"
}

@test "a block freed on another stream than its own goes on behind both, and the pool stays as it is (C58)" {
  # Lost otherwise: what the other stream still reads; or memory with each such free.
  local backend rounds=5000 BACKENDS="direct pool arena:size=32M managed $ALLOCATORS/example.so $ALLOCATORS/plain.so"
  [ "$CUPLUG_TEST_DRIVER" = sim ] || rounds=100000
  assert_says "freed on another stream: $rounds, wrong: 0" freed_elsewhere.shared $rounds
  assert_says "freed on another stream: 1000, wrong: 0" freed_elsewhere.ptds 1000
  for backend in pool managed; do # the arena cannot grow
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" freed_elsewhere.shared $rounds
    assert_success
    check_stats totals.frees=$rounds totals.peak_reserved_bytes"<=$((32 << 20))" || fail "$backend: see above"
  done
}

@test "ten thousand streams that come and go leave no handles behind, though nobody is short of memory (C54)" {
  # Lost otherwise: an event of the driver's for each stream there ever was, and a walk over all of them in each free.
  needs_sim "counts the simulated driver's calls"
  local BACKENDS="direct pool arena managed $ALLOCATORS/example.so"
  assert_says "streams left: 0, events: few, more of them after as many more: hardly any" streams_gone.link handles 10000
}

@test "ten thousand threads that come and go leave nothing of their default streams behind (C54)" {
  # Lost otherwise: the same; nothing says that such a stream is gone.
  needs_sim "counts the simulated driver's calls"
  local threads=10000 BACKENDS="direct pool arena managed $ALLOCATORS/example.so"
  [ -z "$QUICK" ] || threads=2000
  assert_says "streams left: 0, events: few, more of them after as many more: hardly any" streams_gone.link threads $threads
}
