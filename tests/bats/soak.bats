# The whole library against a model, on random operations: sizes, streams, threads, contexts, captures, failures of the driver. `make soak` does the
# same a hundred times as long.

load helpers/load

@test "a million random operations: no block with two owners, none reused before its time, no byte lost" {
  # Lost otherwise: the program's data, in ways that nobody thought of.
  local operations=1000000
  needs_sim "the model follows the simulated driver's memory"
  needs_own_processor "the library beside it is this one's"
  case $SANITIZER in
  *libtsan*) operations=150000 ;;
  *libasan*) operations=300000 ;;
  *) [ -z "$QUICK" ] || operations=300000 ;;
  esac
  run --separate-stderr env -u LD_PRELOAD BUILD="$BUILD" "$PYTHON" "$ROOT/tests/soak/run" $operations 1
  assert_success
  assert_line --partial "operations in 26 pieces, 0 wrong"
}
