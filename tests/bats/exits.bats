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
        assert_same "exits.$program $way $kind ($backend)" "status $(expected_end "$way"): " "status $status: $output$stderr"
      done
    done
  done
}

@test "a process ends by return, exit, _exit, quick_exit, abort, signals, exec, or in a thread, while threads and handlers go on" {
  # Lost otherwise: the exit status, which a job system looks at, or the job's time limit.
  ends late
}

@test "no driver call of ours once the driver is down" {
  # Lost otherwise: a crash at the end of a run that went well.
  needs_sim "a driver that ends the process if it is called after its end"
  ends quiet SIMCUDA_EXIT=crash
}
