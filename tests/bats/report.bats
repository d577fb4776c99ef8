# What the shim says: nothing unless asked, then the truth.

load helpers/load

FIELDS="allocations frees failed live_blocks live_bytes peak_live_bytes reserved_bytes peak_reserved_bytes driver_allocs driver_frees fences"

@test "stdout is the program's alone, at every log level, and stderr is empty by default (C115)" {
  # Lost otherwise: whatever the program's output is piped into.
  needs_own_processor "byte for byte, without the helper that knows of emulators"
  local backend level said expected=$BATS_TEST_TMPDIR/expected actual=$BATS_TEST_TMPDIR/actual
  local run_it=(env LD_LIBRARY_PATH="$DRIVER_PATH:${LD_LIBRARY_PATH:-}")
  "${run_it[@]}" ${SANITIZER:+LD_PRELOAD="$SANITIZER"} "$PROGRAMS/quiet_output.shared" >"$expected"
  [ -s "$expected" ]
  for backend in $BACKENDS; do
    said=0
    for level in error warn info debug; do # and at each there is more to say, of a wrong value, a misspelt name and a library
      [ $level = info ] || said=$((said + 1))
      [ "$SANITIZER" = "" ] || [ $level != debug ] || said=2
      "${run_it[@]}" LD_PRELOAD="$(preload)" CUPLUG_BACKEND="$backend" CUPLUG_LOG="$level" CUPLUG_REPORT=1 CUPLUG_DEEPBIND=ignore \
        CUPLUG_RUNTIME_FRONT=maybe CUPLUG_BACKNED=pool "$PROGRAMS/quiet_output.shared" "$PROGRAMS/next_second.so" >"$actual" 2>"$actual.stderr"
      cmp "$expected" "$actual"
      assert_equal "$level: $(grep -cE '^cuplug: (CUPLUG_RUNTIME_FRONT|CUPLUG_BACKNED|.*RTLD_DEEPBIND)' "$actual.stderr")" "$level: $said"
    done
    "${run_it[@]}" LD_PRELOAD="$(preload)" CUPLUG_BACKEND="$backend" "$PROGRAMS/quiet_output.shared" 2>&1 >"$actual" | tee "$actual.stderr"
    cmp "$expected" "$actual"
    [ ! -s "$actual.stderr" ]
  done
}

@test "CUPLUG_REPORT=1 prints a summary on stderr at exit" {
  # Lost otherwise: the user's way of seeing that anything happened.
  local backend
  for backend in $BACKENDS; do
    with_shim "$backend" CUPLUG_REPORT=1 runtime_kinds.shared malloc
    assert_success
    assert_line --index 0 "malloc: right"
    assert_equal "$(wc -l <<<"$output")" 2
    assert [ -n "$stderr" ]
    grep -q "$(backend_name "$backend")" <<<"$stderr"
    grep -qw 4 <<<"$stderr"
    run grep -v '^cuplug: ' <<<"$stderr"
    assert_output ""
  done
}

@test "a process without CUDA calls reports and writes nothing" {
  with_shim pool CUPLUG_REPORT=1 CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" next_lookup
  assert_success
  assert_equal "$stderr" ""
  run find "$BATS_TEST_TMPDIR" -name 'stats.*'
  assert_output ""
}

@test "the statistics are JSON with schema, process, totals, backends and devices" {
  # Lost otherwise: every script that reads them.
  local backend field conditions
  for backend in $BACKENDS; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" runtime_kinds.shared malloc
    assert_success
    "$PYTHON" -m json.tool "$(find "$BATS_TEST_TMPDIR" -name 'stats.*')" >/dev/null
    conditions=(schema=1 "pid=$(find "$BATS_TEST_TMPDIR" -name 'stats.*' | sed 's/.*\.//')")
    for field in $FIELDS; do
      conditions+=("totals.$field>=0" "backends.$(backend_name "$backend").$field>=0" "devices.0.$field>=0")
    done
    check_stats "${conditions[@]}" totals.allocations=4 "backends.$(backend_name "$backend").allocations=4" devices.0.allocations=4 \
      totals.frees=4 totals.failed=0 totals.live_bytes=0 totals.peak_live_bytes=100000 totals.driver_allocs">="1 \
      totals.peak_reserved_bytes">="100000
  done
}

@test "direct asks the driver for each allocation, pool does not" {
  # Lost otherwise: the point of a pool.
  with_shim direct CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" recycled_blocks.shared 500
  check_stats totals.allocations=500 totals.driver_allocs=500 totals.driver_frees=500
  rm "$BATS_TEST_TMPDIR"/stats.*
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" recycled_blocks.shared 500
  check_stats totals.allocations=500 totals.driver_allocs"<="50
}

@test "failed allocations and live blocks are counted" {
  local backend
  for backend in $BACKENDS; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" out_of_memory.shared real
    assert_success
    check_stats totals.allocations=2 totals.failed=4 totals.frees=0 totals.live_blocks=2 totals.live_bytes=8192
  done
}

@test "an unknown backend: one line that says what would be right, then the driver as it is" {
  # Lost otherwise: hours, in search of why a misspelt setting does nothing.
  with_shim pol runtime_kinds.shared malloc
  assert_success
  assert_line "malloc: right"
  assert_equal "$(wc -l <<<"$stderr")" 1
  [[ $stderr =~ ^"cuplug: CUPLUG_BACKEND=pol: no such backend ("direct,\ pool.*"); using direct"$ ]]
  with_shim pol CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" runtime_kinds.shared malloc
  check_stats backends.direct.allocations=4
}

@test "no backend named: the driver as it is, tracked" {
  with_shim unset CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" runtime_kinds.shared malloc
  assert_success
  assert_equal "$stderr" ""
  check_stats backends.direct.allocations=4 totals.driver_allocs=4
}
