# What every bats file loads: where things are, how a program is run with and without the shim, how its counts are checked.
#
# BUILD (default: build) says which variant is tested, CUPLUG_TEST_DRIVER (sim or gpu) in front of which driver, RUNNER what starts programs of another
# processor (qemu-aarch64 -L …). The shim is preloaded by env and only in front of the program under test; nothing here exports LD_PRELOAD.

bats_require_minimum_version 1.5.0

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
: "${BUILD:=build}" "${CUPLUG_TEST_DRIVER:=sim}" "${CUPLUG_TEST_TIMEOUT:=60}" "${RUNNER:=}"
[[ $BUILD == /* ]] || BUILD=$ROOT/$BUILD
: "${BUILD_DEBUG:=$BUILD/debug}"
[[ $BUILD_DEBUG == /* ]] || BUILD_DEBUG=$ROOT/$BUILD_DEBUG
SHIM=$BUILD/libcuplug.so
DEBUG_SHIM=$BUILD_DEBUG/libcuplug.so
FAKE=$BUILD/fake
STATS=$ROOT/tests/bats/helpers/stats.py
PYTHON=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)

for library_path in "$ROOT/.gpu/root/usr/lib/bats" /usr/lib/bats; do
  [ -n "${BATS_LIB_PATH:-}" ] && [ -d "${BATS_LIB_PATH%%:*}/bats-support" ] && break
  BATS_LIB_PATH=$library_path
done
export BATS_LIB_PATH
bats_load_library bats-support
bats_load_library bats-assert

if [ "$CUPLUG_TEST_DRIVER" = gpu ]; then
  PROGRAMS=$BUILD/programs-gpu
  DRIVER_PATH=${CUDA_LIB:-${CUDA_HOME:-/usr/local/cuda}/lib64}
else
  PROGRAMS=$BUILD/programs
  DRIVER_PATH=$BUILD/sim
fi

# Allocator libraries of the tests: a plugin with cuplug/backend.h, and the smallest pair of functions.
ALLOCATORS=$PROGRAMS/allocators
: "${BACKENDS:=direct pool arena managed $ALLOCATORS/example.so $ALLOCATORS/plain.so}"

# gcc's sanitizers refuse to start behind another preload, so they come first.
SANITIZER=$(ldd "$SHIM" 2>/dev/null | awk '/lib[at]san/ { print $3; exit }')
# They make programs ten times slower, and a loaded machine does the same once more.
[ -z "$SANITIZER" ] || [ "$CUPLUG_TEST_TIMEOUT" -gt 60 ] || CUPLUG_TEST_TIMEOUT=240
# Where the same tests run in full with another build as well, what takes minutes does less, or nothing: with a sanitizer, for another processor, or
# where the caller sets it.
: "${QUICK:=$SANITIZER$RUNNER}"
# What sanitizers report goes to files that tests/bats/run counts as failures, since a test may expect its program to fail, or not look at stderr.
sanitizer_reports=log_path=${SANITIZER_REPORTS:-stderr}
export ASAN_OPTIONS="detect_leaks=0:$sanitizer_reports:${ASAN_OPTIONS:-}"
export TSAN_OPTIONS="exitcode=66:atexit_sleep_ms=10:$sanitizer_reports:${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:$sanitizer_reports:${UBSAN_OPTIONS:-}"

# No setting of the caller's may leak into a test.
unset "${!CUPLUG_BACKEND@}" "${!CUPLUG_REPORT@}" "${!CUPLUG_STATS@}" "${!CUPLUG_LOG@}" "${!CUPLUG_DEBUG_FAULT@}" "${!SIMCUDA_@}"

# preload [SHIM]: the value of LD_PRELOAD that puts the shim in front.
preload() {
  echo "${SANITIZER:+$SANITIZER }${1:-$SHIM}"
}

# program NAME: its path, unless it is one already.
program() {
  case $1 in
  */*) echo "$1" ;;
  *) echo "$PROGRAMS/$1" ;;
  esac
}

# started PRELOAD [VAR=VALUE…] PROGRAM [ARG…]: runs it with that LD_PRELOAD (perhaps none). An emulator (RUNNER) is told of the loader's variables, which
# are the program's and not its own, one by one.
started() {
  local variable settings=() loader=(LD_LIBRARY_PATH="$DRIVER_PATH:${LD_LIBRARY_PATH:-}" ${1:+LD_PRELOAD="$1"})
  shift
  while [[ $1 == *=* ]]; do settings+=("$1"); shift; done
  if [ -z "$RUNNER" ]; then
    settings=("${loader[@]}" "${settings[@]}")
  else
    # shellcheck disable=SC2206
    settings+=($RUNNER)
    for variable in "${loader[@]}"; do settings+=(-E "$variable"); done
  fi
  run --separate-stderr timeout -k 5 "$CUPLUG_TEST_TIMEOUT" env "${settings[@]}" "$(program "$1")" "${@:2}"
}

# without_shim [VAR=VALUE…] PROGRAM [ARG…]: runs the program on the bare driver; bats' $output, $stderr and $status.
without_shim() {
  started "$SANITIZER" "$@"
}

# with_shim BACKEND [VAR=VALUE…] PROGRAM [ARG…]: the same behind the shim. BACKEND "unset" leaves the choice to the shim.
with_shim() {
  local backend=$1
  shift
  [ "$backend" = unset ] || set -- "CUPLUG_BACKEND=$backend" "$@"
  started "$(preload)" "$@"
}

# with_debug_shim FAULT …: with_shim pool, in the debug build with a planted fault.
with_debug_shim() {
  local SHIM=$DEBUG_SHIM fault=$1
  shift
  with_shim pool CUPLUG_DEBUG_FAULT="$fault" "$@"
}

# A program that cannot run on this machine says so.
skip_if_said() {
  if [[ $output == skip:* ]]; then
    skip "${output#skip: }"
  fi
}

# assert_same WHAT EXPECTED ACTUAL: shows where they differ, as whole outputs would be long.
assert_same() {
  [ "$2" = "$3" ] || fail "$1 differs from what is expected:
$(diff -U2 <(echo "$2") <(echo "$3") | sed 1,2d | head -20)"
}

# assert_like_bare_driver [VAR=VALUE…] PROGRAM [ARG…]: the same output, status and (empty) stderr with and without the shim, every backend.
assert_like_bare_driver() {
  local backend expected expected_status expected_stderr
  without_shim "$@"
  skip_if_said
  expected=$output expected_status=$status expected_stderr=$stderr
  for backend in $BACKENDS; do
    with_shim "$backend" "$@"
    assert_same "$* ($backend)" "status $expected_status
$expected
$expected_stderr" "status $status
$output
$stderr"
  done
}

# assert_says TEXT [VAR=VALUE…] PROGRAM [ARG…]: succeeds with exactly this output, on the bare driver and with every backend.
assert_says() {
  local text=$1 backend
  shift
  without_shim "$@"
  skip_if_said
  assert_same "$* (bare driver)" "status 0: $text " "status $status: $output $stderr"
  for backend in $BACKENDS; do
    with_shim "$backend" "$@"
    assert_same "$* ($backend)" "status 0: $text " "status $status: $output $stderr"
  done
}

# assert_nothing_spoiled EXPECTED OUTPUT: of the captures of the program "capture", what ended well on the bare driver ends well here, with the same answers; the rest may be better.
assert_nothing_spoiled() {
  local line
  while read -r line; do
    case $line in
    *"replay right") grep -qxF -- "$line" <<<"$2" || fail "bare driver: $line
shim: $(grep -F -- "${line%%:*}:" <<<"$2")" ;;
    *) grep -qF -- "${line%%:*}:" <<<"$2" || fail "missing: $line" ;;
    esac
  done <<<"$1"
}

# backend_name SPEC: what the statistics call a value of CUPLUG_BACKEND.
backend_name() {
  case $1 in
  *.so | *.so:*) echo plugin ;;
  *) echo "${1%%:*}" ;;
  esac
}

# count BACKEND COUNTED-AS [VAR=VALUE…] PROGRAM [ARG…]: the totals of the shim's statistics, and those of the backend named COUNTED-AS,
# are what the program expects (its line "expect key=value…").
count() {
  local backend=$1 counted_as=$2 expected pair conditions=() file
  shift 2
  rm -f "$BATS_TEST_TMPDIR"/stats.*
  with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "$@"
  skip_if_said
  assert_equal "$* ($backend): status $status $stderr" "$* ($backend): status 0 "
  file=$(find "$BATS_TEST_TMPDIR" -name 'stats.*')
  [ -f "$file" ] || fail "$* ($backend): not one statistics file: $file"
  expected=$(sed -n 's/^expect //p' <<<"$output")
  [ -n "$expected" ] || fail "$*: the program expects nothing"
  for pair in $expected; do
    conditions+=("totals.$pair")
    [ -z "$counted_as" ] || conditions+=("backends.$(backend_name "$counted_as").$pair")
  done
  "$PYTHON" "$STATS" "$file" "${conditions[@]}" || fail "$* ($backend): the counts above are wrong"
}

# check_stats CONDITION…: of the one statistics file of this test.
check_stats() {
  "$PYTHON" "$STATS" "$(find "$BATS_TEST_TMPDIR" -name 'stats.*')" "$@"
}

needs_sim() {
  [ "$CUPLUG_TEST_DRIVER" = sim ] || skip "needs the simulated driver: $1"
}

needs_debug_shim() {
  [ -f "$DEBUG_SHIM" ] || skip "no debug build at $DEBUG_SHIM (make DEBUG=1)"
}

needs_plain_build() {
  ! ldd "$SHIM" 2>/dev/null | grep -q 'lib[atu].*san' || skip "not with a sanitizer: $1"
}

needs_time() {
  [ -z "$QUICK" ] || skip "takes minutes: $1"
}

needs_own_processor() {
  [ -z "$RUNNER" ] || skip "not for another processor: $1"
}
