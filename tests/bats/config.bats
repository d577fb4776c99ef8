# Options: every one of them, wrong in every way, gives one line that says so, and the program runs as before. What is tried comes from the table
# itself (`cuplug config --table`), so a new option is tested without a change here.

load helpers/load

PROGRAM=(runtime_kinds.shared malloc)

setup() {
  EMPTY=$BATS_TEST_TMPDIR/empty
  : >"$EMPTY"
}

# options [TYPE]: the lines of the table, NAME|TYPE|DEFAULT|VALUES. A plugin's options follow the path of a library.
options() {
  "$BUILD/cuplug" config --table | tr '\t' '|' | cut -d'|' -f1-4 | awk -F'|' -v type="${1:-}" 'type == "" || $2 == type' |
    sed "s|^plugin:|$ALLOCATORS/plain.so:|"
}

# faults TYPE DEFAULT: values that such an option must refuse, one a line.
faults() {
  case $1 in
  boolean) printf '%s\n' "" junk 2 1x yes! -1 10 "1 1" ;;
  word) printf '%s\n' "" "a b" a-b "a'" ;;
  choice) printf '%s\n' "" junk "$2x" "$2 $2" -1 0 ;;
  amount) printf '%s\n' "" junk 99999999999999999999G 20000000T 8Q 8P 0% 101% 8Gx "8G 8G" 50%% -1 1.5G 0x10
    [[ $values == *"at least 0"* ]] || printf '%s\n' 0 1 ;;
  seconds) printf '%s\n' "" junk 8Q 2M 5s 50% -1 1.5 ;;
  size) printf '%s\n' "" junk 99999999999999999999G 20000000T 8Q 8P 8Gx "8G 8G" 50% -1 1.5G 0x10 ;;
  backend) printf '%s\n' "" junk "$2x" "$2:" "$2,$2" "$2:junk=1" pool: pool:junk=1 pool:reuse pool:reuse=fence, pool:reuse=fence:x ;;
  backends) printf '%s\n' "" " " junk "managed junk" managed:junk=1 "managed arena:size=0" managed, "managed,arena" ;;
  input-file) printf '%s\n' "" "$BATS_TEST_TMPDIR/missing" "$BATS_TEST_TMPDIR" /dev/null ;;
  output-file) printf '%s\n' "" "$BATS_TEST_TMPDIR/missing/file" "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/" ;;
  template) printf '%s\n' "" % x.%z x.%q "x.%q{}" "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/%p/" ;;
  *) fail "type $1 is not known here: say how such an option can be wrong" ;;
  esac
}

# refused WHERE SETTING…: with these settings the program says and returns what it does without the shim, and stderr is one line, from WHERE on and
# with what would be right in brackets.
refused() {
  local where=$1 rest
  shift
  with_shim unset "$@" "${PROGRAM[@]}"
  assert_equal "$*: status $status: $output" "$*: status $EXPECTED_STATUS: $EXPECTED"
  rest=${stderr#"cuplug: $where"}
  if [ "$(wc -l <<<"$stderr")" != 1 ] || [ "$rest" = "$stderr" ] || [[ $rest != *"("*")"* ]]; then
    fail "$*: not one line that starts with 'cuplug: $where' and says what would be right: $stderr"
  fi
}

learn_the_bare_drivers_answer() {
  without_shim "${PROGRAM[@]}"
  EXPECTED=$output EXPECTED_STATUS=$status
  assert_equal "$EXPECTED_STATUS" 0
}

@test "a bad value in the environment: one line, then the program as before (every option, every fault)" {
  needs_sim "hundreds of runs that no GPU is needed for"
  [[ $SANITIZER != *libtsan* ]] || skip "options are read by one thread"
  # Lost otherwise: hours, in search of why a misspelt setting does nothing; or the program.
  local name type standard values value tried=0
  learn_the_bare_drivers_answer
  while IFS='|' read -r name type standard values; do
    while read -r value; do
      if [[ $name == *:* ]]; then
        refused "CUPLUG_BACKEND=$name=$value: " CUPLUG_BACKEND="$name=$value"
        [[ $stderr == *"($values)"* ]] || fail "$name=$value: the values ($values) are not named: $stderr"
      else
        refused "$name=$value: " "$name=$value"
        [[ $type == *file ]] || [[ $type == template ]] || [[ $value == *:* ]] || [[ $stderr == *"($values)"* ]] ||
          fail "$name=$value: the values ($values) are not named: $stderr"
      fi
      tried=$((tried + 1))
    done < <(faults "$type" "$standard")
  done < <(options)
  [ "$tried" -gt 100 ] || fail "only $tried values were tried"
}

@test "a bad value in the configuration file: one line with file and line (every option, every fault)" {
  needs_sim "hundreds of runs that no GPU is needed for"
  [[ $SANITIZER != *libtsan* ]] || skip "options are read by one thread"
  local name type standard values value key file=$BATS_TEST_TMPDIR/options tried=0
  learn_the_bare_drivers_answer
  while IFS='|' read -r name type standard values; do
    [ "$type" != input-file ] || continue
    while read -r value; do
      key=$(tr '[:upper:]' '[:lower:]' <<<"${name#CUPLUG_}")
      [[ $name != *:* ]] || { value=$name=$value; key=backend; }
      printf '# a comment\n%s = %s\n' "$key" "$value" >"$file"
      refused "$file:2: $key = $value: " CUPLUG_CONFIG="$file"
      tried=$((tried + 1))
    done < <(faults "$type" "$standard")
  done < <(options)
  [ "$tried" -gt 100 ] || fail "only $tried values were tried"
}

@test "lines that are no options, files that cannot be read, folders that do not exist: one line" {
  local file=$BATS_TEST_TMPDIR/options line
  learn_the_bare_drivers_answer
  for line in "repport = 1" "report" "= 1" "REPORT = 1" "route size>=1G -> managed" "config = x"; do
    printf '\n\n%s\n' "$line" >"$file"
    refused "$file:3: $line: " CUPLUG_CONFIG="$file"
  done
  mkfifo "$BATS_TEST_TMPDIR/fifo" # opening it would block
  refused "CUPLUG_CONFIG=$BATS_TEST_TMPDIR/fifo: " CUPLUG_CONFIG="$BATS_TEST_TMPDIR/fifo"
  truncate -s 2M "$BATS_TEST_TMPDIR/large"
  refused "CUPLUG_CONFIG=$BATS_TEST_TMPDIR/large: " CUPLUG_CONFIG="$BATS_TEST_TMPDIR/large"
  with_shim unset CUPLUG_STATS="$BATS_TEST_TMPDIR/none/%p" "${PROGRAM[@]}"
  assert_equal "status $status: $output" "status 0: $EXPECTED"
  [[ $stderr == "cuplug: CUPLUG_STATS=$BATS_TEST_TMPDIR/none/%p: "*"No such file or directory" ]] || fail "$stderr"
}

@test "a value with line ends, or longer than a line, still gives one line" {
  learn_the_bare_drivers_answer
  refused "CUPLUG_LOG=a?b: " CUPLUG_LOG=$'a\nb'
  refused "CUPLUG_LOG=xxxxxxxx" CUPLUG_LOG="$(printf 'x%.0s' {1..5000})"
  [[ $stderr == *"(error, warn, info, debug); using warn" ]] || fail "$stderr"
}

@test "the default of every option is a valid value, and good values are silent" {
  needs_sim "a run for each option"
  local name type standard values
  learn_the_bare_drivers_answer
  while IFS='|' read -r name type standard values; do
    [ -n "$standard" ] || continue
    [[ $name != *:* ]] || { standard=$name=$standard; name=CUPLUG_BACKEND; }
    with_shim unset "$name=$standard" "${PROGRAM[@]}"
    assert_equal "$name=$standard, status $status: $output$stderr" "$name=$standard, status 0: $EXPECTED"
  done < <(options)
  with_shim unset CUPLUG_CONFIG="$EMPTY" "${PROGRAM[@]}"
  assert_equal "$stderr" ""
}

@test "a misspelt variable gives one warning with the nearest name; CUPLUG_LOG=error hides it" {
  learn_the_bare_drivers_answer
  with_shim unset CUPLUG_BACKNED=pool "${PROGRAM[@]}"
  assert_equal "status $status: $output" "status 0: $EXPECTED"
  assert_equal "$stderr" "cuplug: CUPLUG_BACKNED: no such option (did you mean CUPLUG_BACKEND?)"
  with_shim unset CUPLUG_BACKNED=pool CUPLUG_LOG=error "${PROGRAM[@]}"
  assert_equal "$stderr" ""
}

@test "the environment wins over the configuration file, which wins over the default" {
  local file=$BATS_TEST_TMPDIR/options
  printf 'backend = pool   # cached\nstats = %s/file.%%p\n' "$BATS_TEST_TMPDIR" >"$file"
  with_shim unset CUPLUG_CONFIG="$file" "${PROGRAM[@]}"
  assert_equal "$status $stderr" "0 "
  "$PYTHON" "$STATS" "$BATS_TEST_TMPDIR"/file.* backends.pool.allocations=4
  with_shim direct CUPLUG_CONFIG="$file" CUPLUG_STATS="$BATS_TEST_TMPDIR/environment.%p" "${PROGRAM[@]}"
  "$PYTHON" "$STATS" "$BATS_TEST_TMPDIR"/environment.* backends.direct.allocations=4
}

@test "messages go to CUPLUG_LOG_FILE" {
  with_shim unset CUPLUG_LOG_FILE="$BATS_TEST_TMPDIR/log" CUPLUG_REPORT=maybe "${PROGRAM[@]}"
  assert_equal "$status $stderr" "0 "
  run cat "$BATS_TEST_TMPDIR/log"
  assert_output --partial "cuplug: CUPLUG_REPORT=maybe: not a boolean ("
}

@test "statistics of ranks and programs go to files of their own; what is unknown becomes 'none', with one warning" {
  # Lost otherwise: all but one rank's statistics.
  local rank
  for rank in 0 1; do
    with_shim unset RANK=$rank SLURM_JOB_ID=a/b CUPLUG_STATS="$BATS_TEST_TMPDIR/%e.%r.%j" "${PROGRAM[@]}"
    assert_equal "$status $stderr" "0 "
    [ -s "$BATS_TEST_TMPDIR/runtime_kinds.shared.$rank.a_b" ]
  done
  with_shim unset CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%q{CUPLUG_TEST_UNSET}" "${PROGRAM[@]}"
  assert_equal "$(wc -l <<<"$stderr")" 1
  [ -s "$BATS_TEST_TMPDIR/stats.none" ]
}

# child_preload SETTING…: LD_PRELOAD as a child of a process sees it that has used CUDA.
child_preload() {
  run --separate-stderr env LD_LIBRARY_PATH="$DRIVER_PATH:${LD_LIBRARY_PATH:-}" "$@" "$PYTHON" -c '
import ctypes, glob, os, sys
runtime = ctypes.CDLL(glob.glob(sys.argv[1] + "/libcudart.so.13")[0])
memory = ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(memory), 4096) == 0 and runtime.cudaFree(memory) == 0
sys.exit(os.system("echo \"[$LD_PRELOAD]\"") >> 8)' "$DRIVER_PATH"
  assert_equal "$status $stderr" "0 "
}

@test "CUPLUG_FOLLOW=0: children run without the shim, other preloads stay (C111)" {
  local other=$PROGRAMS/next_second.so first=${SANITIZER:+$SANITIZER:} link=$BATS_TEST_TMPDIR/link.so
  child_preload LD_PRELOAD="$first$SHIM:$other"
  assert_output "[$first$SHIM:$other]"
  child_preload CUPLUG_FOLLOW=0 LD_PRELOAD="$first$SHIM:$other"
  assert_output "[$first$other]"
  child_preload CUPLUG_FOLLOW=0 LD_PRELOAD="$first$other $SHIM"
  assert_output "[$first$other]"
  [[ $SANITIZER != *libtsan* ]] || return 0 # which crashes a shell if it comes alone
  ln -s "$SHIM" "$link"
  child_preload CUPLUG_FOLLOW=0 LD_PRELOAD="$first$link"
  assert_output "[${SANITIZER:-}]"
}

@test "the man page and the README say what config/options.def says" {
  # Lost otherwise: the truth of the documentation.
  run "$ROOT/tools/docs" "$BUILD/cuplug" --check
  assert_success
}

@test "CUPLUG_STRICT=1: after a refused option allocations fail, after a valid one nothing changes" {
  # Lost otherwise: the certainty that a run had the memory it was meant to have.
  with_shim unset CUPLUG_STRICT=1 CUPLUG_BACKEND=pol "${PROGRAM[@]}"
  assert_failure
  assert_equal "$(head -n 1 <<<"$stderr")" "cuplug: CUPLUG_BACKEND=pol: no such backend (direct, pool, arena, managed, async, or the path of a .so); allocations will fail"
  with_shim pool CUPLUG_STRICT=1 "${PROGRAM[@]}"
  assert_equal "$status $stderr" "0 "
}
