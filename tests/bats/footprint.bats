# How much memory is held of the driver for what is live, and that it comes back when it is asked for.

load helpers/load

# bounded MIB PATTERN [BACKEND…]: with each backend that gives memory out again, the pattern never holds more than so many MiB.
bounded() {
  local most=$1 pattern=$2 backend
  shift 2
  for backend in "${@:-pool}"; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" footprints.link "$pattern"
    [[ $status = 0 && -z $stderr && $output = *done ]] || fail "$backend: $pattern: $status: $output $stderr"
    refute_output --regexp 'wrong: [1-9]'
    check_stats "totals.peak_reserved_bytes<=$((most << 20))" || fail "$backend: $pattern"
  done
}

@test "a host far ahead of the device holds a bounded amount" {
  # Lost otherwise: the device's memory, to a loop that has 16 MiB in use.
  bounded 48 ahead pool
  bounded 160 ahead managed pool:reuse=completed
}

@test "so does a thread that frees what another allocates" {
  bounded 64 handoff pool
  bounded 160 handoff managed pool:reuse=completed
}

@test "so does memory that is freed on another stream than it was allocated on, and no stream writes what the other still reads" {
  # Lost otherwise: gigabytes, for 16 MiB; or data.
  bounded 192 across pool pool:slack=0
  bounded 256 steps pool managed pool:reuse=completed
}

@test "no stream waits for another where the program has forbidden its pool just that" {
  # Lost otherwise: the program, whose streams wait for each other the other way round.
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" footprints.link across
  check_stats "totals.waits>=1"
  rm "$BATS_TEST_TMPDIR"/stats.*
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" footprints.link across independent
  assert_output --partial done
  check_stats totals.waits=0
}

@test "so do streams that live for one piece of work" {
  bounded 32 short pool managed pool:reuse=completed
}

@test "so do sawtooths, ever larger blocks, and phases of small and of large blocks (C88)" {
  bounded 160 sawtooth pool managed
  bounded 96 growing pool managed
  bounded 256 phases pool managed
}

# used SPEC WHAT: what the driver says is used after the program's frees, in MiB.
used() {
  with_shim "$1" CUPLUG_MEMINFO=raw footprints.link "$2"
  assert_success
  sed -n 's/^the driver says that \(.*\) MiB are used$/\1/p' <<<"$output"
}

@test "keep= says how much idle memory stays: the rest is the driver's again after the frees (C85)" {
  # Lost otherwise: another process's memory, to one that has it idle.
  needs_sim "nobody else may use the device"
  assert_equal "$(used pool:keep=0 all)" 0
  [ "$(used pool all)" -ge 96 ]
  [ "$(used pool:keep=40M all)" -le 40 ]
  [ "$(used pool:keep=40M all)" -ge 4 ]
  [ "$(used pool:keep=0 some)" -le 16 ] # the segment of the one block that is live
}

@test "decay= gives back what nobody used for so long, and nothing else" {
  needs_sim "nobody else may use the device"
  [ "$(used pool:decay=1 again)" -le 64 ]
  [ "$(used pool:decay=90 again)" -ge 96 ]
}

@test "what goes back for its age is what is old, also beside small pairs that a thread keeps, and mapped memory in parts" {
  # Lost otherwise: memory that nobody uses; or time, to give back and take again what is in use.
  needs_time "the ages are seconds"
  local statistics="CUPLUG_STATS=$BATS_TEST_TMPDIR/stats.%p"
  with_shim pool:decay=1 "$statistics" discipline.link old
  assert_output done
  check_stats totals.driver_frees=1 "totals.reserved_bytes<=$((106 << 20))"
  rm "$BATS_TEST_TMPDIR"/stats.*
  with_shim pool:source=vmm,decay=1 "$statistics" discipline.link spread
  assert_output done
  check_stats "totals.reserved_bytes<=$((64 << 20))"
}

@test "after memory was out once, frees soon cost what they cost before" {
  # Lost otherwise: time, for as long as the program runs: a record for each free.
  needs_sim "a device of its own size"
  with_shim pool SIMCUDA_MEMORY=1G CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" discipline.link tight
  assert_output done
  check_stats "totals.fences>=1000" "totals.fences<=20000"
}

@test "pairs cost no more records beside many streams, also such as were destroyed while they captured" {
  # Lost otherwise: time, with every stream that a thread ever freed on.
  needs_sim "destroys streams that capture"
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" discipline.link beside
  assert_output done
  check_stats "totals.fences<=800"
}

@test "a stream's free counts what it frees, and not what that is merged with" {
  # Lost otherwise: time: a record for each free beside a large block.
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" discipline.link merged
  assert_output done
  check_stats "totals.fences>=20" "totals.fences<=400"
}

@test "keep=0 neither waits nor frees while a stream captures, and leaves no error behind" {
  # Lost otherwise: the capture.
  local BACKENDS="pool:keep=0 pool:keep=0,decay=1"
  needs_sim "counts the memory of a device of its own"
  assert_says "allocations in a row: 200, 0
the capture's end: 0" SIMCUDA_MEMORY=1G idle_memory.link capturing
}

@test "the order of work holds where idle memory goes back at once" {
  # Lost otherwise: data.
  local BACKENDS="pool:keep=0 pool:slack=0 pool:keep=1M,reuse=completed" name
  for name in non-blocking legacy per-thread exited-thread behind-event crowd; do
    assert_says "$name: old kernel done before new owner's write: yes" free_waits_for_kernel.shared "$name"
  done
  assert_says "recycled blocks: 1000, wrong: 0" recycled_blocks.shared 1000
  assert_says "finished: yes" persistent_kernel.link wait-value 1024
}

@test "max= bounds what the pool takes, and all of it can be had (C90)" {
  local size blocks
  needs_sim "counts the device's memory"
  for size in 2 8 64 65; do
    case $size in 2) blocks=32 ;; 8) blocks=8 ;; 64) blocks=1 ;; *) blocks=0 ;; esac
    with_shim pool:max=64M limits.link until "$size"
    assert_output "blocks: $blocks"
  done
  with_shim pool:max=25% SIMCUDA_MEMORY=1G limits.link until 32
  assert_output "blocks: 8"
  with_shim pool:max=64M limits.link info
  assert_output "MiB free at first: 64; the total is the device's: yes
all of it: CUDA_SUCCESS
MiB free then: 0
free again: yes"
  with_shim pool:max=16M context_reset.shared # what went away with its context counts no more
  assert_line "lived three times"
}

@test "the statistics tell idle, pending, cached and wasted bytes, and the largest piece" {
  # Lost otherwise: the reason why more is held than is live.
  with_shim pool CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" footprints.link some
  assert_success
  check_stats "totals.live_bytes=$((3 << 19))" "totals.reserved_bytes>=$((96 << 20))" "totals.waste_bytes=0" "totals.cached_bytes>=4096" \
    "totals.largest_idle<=$((96 << 20))" "devices.0.idle_bytes>=$((64 << 20))" "backends.pool.idle_bytes>=$((64 << 20))" "totals.pending_bytes<=$((96 << 20))"
}
