# Processes end in many ways, with memory live and freed, and with threads and handlers that go on allocating. tests/soak/exits does the same a
# thousand times.

load helpers/load

WAYS_TO_END="return exit _exit quick_exit abort SIGTERM SIGSEGV SIGKILL exec thread"
! ldd "$SHIM" 2>/dev/null | grep -q 'lib[atu].*san' || WAYS_TO_END=${WAYS_TO_END/SIGSEGV /} # which a sanitizer takes for a finding

# expected_end WAY: the exit status of a program that ends like that.
expected_end() {
  case $1 in
  abort) echo 134 ;;
  SIGTERM) echo 143 ;;
  SIGSEGV) echo 139 ;;
  SIGKILL) echo 137 ;;
  *) echo 3 ;;
  esac
}

# ends KIND [VAR=VALUE…]: with every backend, by every way, the status is the one it should be, and nobody has said anything.
ends() {
  local kind=$1 way backend program
  shift
  for program in shared static; do
    for way in $WAYS_TO_END; do
      for backend in $BACKENDS; do
        with_shim "$backend" "$@" "exits.$program" "$way" "$kind"
        # The real driver itself ends so with 2 or 3 of 100 such processes, when a thread calls it after exit() (measured without the shim).
        [ "$CUPLUG_TEST_DRIVER $way $kind $status" != "gpu thread late 139" ] || continue
        assert_same "exits.$program $way $kind ($backend)" "status $(expected_end "$way"): " "status $status: $output$stderr"
      done
    done
  done
}

@test "a process ends by return, exit, _exit, quick_exit, abort, signals, exec, or in a thread, while threads and handlers go on (C103)" {
  # Lost otherwise: the exit status, which a job system looks at, or the job's time limit.
  ends late
}

@test "no driver call of ours once the driver is down (C101)" {
  # Lost otherwise: a crash at the end of a run that went well.
  needs_sim "a driver that ends the process if it is called after its end"
  ends quiet SIMCUDA_EXIT=crash
}

needs_cxx() {
  [ -x "$PROGRAMS/late_frees.shared" ] || skip "no C++ compiler"
}

@test "a global object frees after the driver's end: no crash, no call of the dead driver, a whole report (C101)" {
  # Lost otherwise: the exit status of a run that went well, or the report about it.
  needs_cxx
  local backend run runs=1
  [ "$CUPLUG_TEST_DRIVER" = sim ] || runs=50
  for backend in ${BACKENDS/direct /}; do
    rm -f "$BATS_TEST_TMPDIR"/stats.*
    with_shim "$backend" SIMCUDA_EXIT=crash CUPLUG_REPORT=1 CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" late_frees.shared global
    assert_same "$backend" "status 0: " "status $status: $output$(sed '/^cuplug: /d' <<<"$stderr")"
    assert_equal "$(grep -c '^cuplug: total ' <<<"$stderr")" 1
    check_stats totals.allocations=600 totals.frees=100 totals.live_blocks=500
    for ((run = 1; run < runs; run++)); do
      with_shim "$backend" late_frees.shared global
      assert_same "$backend, run $run" "status 0: " "status $status: $output$stderr"
    done
  done
}

@test "what handlers and destructors free at the end, before and after the driver's, is not called a leak (C103)" {
  # Lost otherwise: hours, in search of leaks that are none.
  needs_cxx
  local backend moment all="global before after thread main-thread library"
  # shellcheck disable=SC2086
  assert_like_bare_driver late_frees.shared $all
  for backend in $BACKENDS; do
    for moment in "" $all; do
      rm -f "$BATS_TEST_TMPDIR"/stats.*
      # shellcheck disable=SC2086
      with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" late_frees.shared $moment
      assert_same "$backend, $moment" "status 0: " "status $status: $output$stderr"
      check_stats totals.allocations=600 "totals.frees=$((${#moment} ? 100 : 0))" "totals.live_blocks=$((${#moment} ? 500 : 600))"
    done
  done
}
