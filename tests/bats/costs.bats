# What an allocation costs, in calls of the driver and in instructions: times would depend on the machine.

load helpers/load

# pairs_called BACKEND THREADS PAIRS LIVE [STREAMS]: the pairs are served without the driver; all its calls in them are left in $calls.
pairs_called() {
  with_shim "$1" hit_pairs.link "${@:2}"
  assert_equal "$1, $2 threads, $4 live: status $status: $output" "$1, $2 threads, $4 live: status 0: calls for memory: 0"
  calls=$stderr
}

@test "a million pairs need no memory from the driver, and no more of its calls while 100000 blocks are live (C63)" {
  # Lost otherwise: the run time of whoever allocates per tensor.
  needs_sim "counts the simulated driver's calls"
  local backend threads calls few pairs=1000000
  [ -z "$QUICK" ] || pairs=50000
  for backend in pool arena; do
    for threads in 1 16; do
      pairs_called "$backend" "$threads" $pairs 10
      few=$calls
      pairs_called "$backend" "$threads" $pairs 100000
      [ "$calls" -le $((few + few / 10)) ] || fail "$backend, $threads threads: $few calls with 10 live, $calls with 100000"
    done
  done
}

@test "a pair in a stream's order asks the driver for the current context twice and for hardly anything else" {
  # Lost otherwise: the run time of whoever allocates in the order of streams: a look-up of the stream, a record, a lock for each.
  needs_sim "counts the simulated driver's calls"
  local backend threads streams calls pairs=20000
  for backend in pool arena; do
    for threads in 1 4; do
      for streams in 1 16; do
        pairs_called "$backend" "$threads" $pairs 10 "$streams"
        [ "$calls" -le $((2 * pairs + pairs / 2)) ] || fail "$backend, $threads threads, $streams streams each: $calls calls for $pairs pairs"
      done
    done
  done
}

# instructions THREADS LIVE: of a pair inside the library.
instructions() {
  run timeout 300 env -i PATH="$PATH" LD_LIBRARY_PATH="$DRIVER_PATH" LD_PRELOAD="$SHIM" CUPLUG_BACKEND=pool \
    valgrind -q --tool=callgrind --callgrind-out-file="$BATS_TEST_TMPDIR/profile" --collect-atstart=no --toggle-collect='counted_*' \
    "$PROGRAMS/hit_pairs.link" "$1" 16000 "$2"
  assert_success
  "$PYTHON" "$ROOT/tests/bats/helpers/instructions.py" "$BATS_TEST_TMPDIR/profile" 16000
}

@test "a pair takes as many instructions with 100000 live blocks as with 10 (C63)" {
  # Lost otherwise: the run time of programs with many tensors. Within a quarter: how full a hash table is costs or saves a few.
  needs_sim "valgrind does not know the real driver"
  needs_plain_build "valgrind and sanitizers exclude each other"
  needs_own_processor "valgrind is this machine's"
  command -v valgrind >/dev/null || skip "no valgrind"
  local threads few many
  for threads in 1 16; do
    few=$(instructions $threads 10)
    many=$(instructions $threads 100000)
    [ "$few" -gt 100 ] || fail "nothing was counted: $few"
    [ "$many" -le $((few + few / 4)) ] || fail "$threads threads: $few instructions with 10 live, $many with 100000"
  done
}
