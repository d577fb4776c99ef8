# The cuplug command: what it starts, refuses, prints and finds out.

load helpers/load

PROGRAM=("$PROGRAMS/runtime_kinds.shared" malloc)

# cuplug ARGUMENT…: the command, in the environment SETTINGS=(VAR=VALUE…); STATUS=(-127) where bats wants to be told of that status.
cuplug() {
  run --separate-stderr "${STATUS[@]}" timeout -k 5 "$CUPLUG_TEST_TIMEOUT" env LD_LIBRARY_PATH="$DRIVER_PATH:${LD_LIBRARY_PATH:-}" \
    ${SANITIZER:+LD_PRELOAD="$SANITIZER"} "${SETTINGS[@]}" "$BUILD/cuplug" "$@"
}

setup() {
  SETTINGS=() STATUS=()
}

compile() {
  "${CC:-cc}" "$@" -x c - <<<'int main(void) { return 0; }' 2>/dev/null
}

# --- run

@test "run: the program's output and status are its own, its memory is served" {
  # Lost otherwise: every script around the program.
  cuplug run -b pool --stats "$BATS_TEST_TMPDIR/stats.%p" -- "${PROGRAM[@]}"
  assert_equal "$status $stderr" "0 "
  assert_line "malloc: right"
  check_stats backends.pool.allocations=4
  cuplug run sh -c 'echo out; echo err >&2; exit 42'
  assert_equal "$status $output $stderr" "42 out err"
  cuplug run sh -c 'kill -TERM $$'
  assert_equal "$status" 143
}

@test "run: flags are the options, in both forms; what follows the program is the program's" {
  cuplug run --backend=pool:reuse=completed --report --log-file /dev/null --runtime-front=0 sh -c \
    'echo "$CUPLUG_BACKEND $CUPLUG_REPORT $CUPLUG_LOG_FILE $CUPLUG_RUNTIME_FRONT $1 $2"' x --report -b
  assert_success
  assert_output "pool:reuse=completed 1 /dev/null 0 --report -b"
}

@test "run: appends to LD_PRELOAD, once, and replaces nothing (C21)" {
  # Lost otherwise: a sanitizer that refuses to start, or the user's other preload.
  local other=$PROGRAMS/next_second.so first=${SANITIZER:+$SANITIZER:}
  [ -f "$other" ]
  cuplug run sh -c 'echo "$LD_PRELOAD"'
  assert_output "$first$SHIM"
  SETTINGS=(LD_PRELOAD="$first$other")
  cuplug run sh -c 'echo "$LD_PRELOAD"'
  assert_output "$first$other:$SHIM"
  cuplug run "$BUILD/cuplug" run sh -c 'echo "$LD_PRELOAD"'
  assert_output "$first$other:$SHIM"
}

@test "run: a gcc-ASan program starts when libasan is preloaded first, as doctor says (C21)" {
  needs_plain_build "brings its own runtime"
  local asan program=$BATS_TEST_TMPDIR/asan
  asan=$(gcc -print-file-name=libasan.so 2>/dev/null) || skip "no gcc"
  CC=gcc compile -fsanitize=address -o "$program" || skip "gcc has no AddressSanitizer here"
  cuplug doctor "$program"
  assert_line --regexp '^problem sanitizer: .*must come first: LD_PRELOAD=\$\(gcc -print-file-name=libasan\.so\) cuplug run'
  SETTINGS=(LD_PRELOAD="$asan")
  cuplug run "$program"
  assert_equal "$status $stderr" "0 "
  cuplug doctor "$program"
  assert_line --regexp '^ok +sanitizer: libasan'
}

@test "run: 125 and nothing started for a refused option, 126 for what cannot be executed, 127 for what is not there" {
  # Lost otherwise: a run of hours with the wrong memory.
  local touch=$BATS_TEST_TMPDIR/started fault
  for fault in -b=pol --backend=pol --report=maybe --log=loud --config=/missing --stats=%z --backend; do
    cuplug run "$fault" touch "$touch"
    assert_equal "$fault: $status, $(wc -l <<<"$stderr") line" "$fault: 125, 1 line"
    [ ! -e "$touch" ]
  done
  cuplug run -b pol true
  assert_equal "$stderr" "cuplug: CUPLUG_BACKEND=pol: no such backend (direct, pool, arena, managed, async, or the path of a .so)"
  SETTINGS=(CUPLUG_REPORT=junk)
  cuplug run true
  assert_equal "$status" 125
  SETTINGS=()
  cuplug run
  assert_equal "$status" 125
  cuplug run -b
  assert_equal "$status" 125
  cuplug run --backnd=pool true
  assert_equal "$status" 125
  [[ $stderr == *"--backnd=pool: no such flag (did you mean --backend?"* ]]
  cuplug run /dev/null
  assert_equal "$status" 126
  cuplug run "$BATS_TEST_TMPDIR"
  assert_equal "$status" 126
  STATUS=(-127)
  cuplug run "$BATS_TEST_TMPDIR/missing"
  cuplug run no-such-program-anywhere
  assert_equal "$status $stderr" "127 cuplug: run: no-such-program-anywhere: No such file or directory"
}

@test "run: finds the library beside itself, in ../lib/cuplug, in ../lib, or where CUPLUG_LIBRARY says" {
  local root=$BATS_TEST_TMPDIR/root place
  mkdir -p "$root/bin" "$root/lib/cuplug" "$root/with blank"
  cp "$BUILD/cuplug" "$root/bin"
  for place in lib/libcuplug.so lib/cuplug/libcuplug.so bin/libcuplug.so; do
    cp "$SHIM" "$root/$place"
    run env ${SANITIZER:+LD_PRELOAD="$SANITIZER"} "$root/bin/cuplug" run sh -c 'echo "$LD_PRELOAD"'
    assert_output "${SANITIZER:+$SANITIZER:}$(realpath "$root/$place")"
  done
  rm "$root"/bin/libcuplug.so "$root"/lib/libcuplug.so "$root"/lib/cuplug/libcuplug.so
  run env ${SANITIZER:+LD_PRELOAD="$SANITIZER"} "$root/bin/cuplug" run true
  assert_equal "$status" 125
  assert_output --partial "no libcuplug.so beside this command"
  SETTINGS=(CUPLUG_LIBRARY=/missing/libcuplug.so)
  cuplug run true
  assert_equal "$status $stderr" "125 cuplug: run: CUPLUG_LIBRARY=/missing/libcuplug.so: No such file or directory (the path of libcuplug.so)"
  cp "$SHIM" "$root/with blank/libcuplug.so"
  SETTINGS=(CUPLUG_LIBRARY="$root/with blank/libcuplug.so")
  cuplug run true
  assert_equal "$status" 125
  [[ $stderr == *"the loader splits LD_PRELOAD at blanks"* ]]
}

# --- env

@test "env: what it prints makes the shell run programs as 'run' does" {
  cuplug env -b pool --stats "$BATS_TEST_TMPDIR/it's.%p"
  assert_success
  assert_line "export CUPLUG_BACKEND='pool'"
  run env LD_LIBRARY_PATH="$DRIVER_PATH" sh -c 'eval "$1"; shift; exec "$@"' sh "$output" "${PROGRAM[@]}"
  assert_success
  "$PYTHON" "$STATS" "$(find "$BATS_TEST_TMPDIR" -name "it's.*")" backends.pool.allocations=4
  cuplug env -b pol
  assert_equal "$status $output" "1 "
  cuplug env true
  assert_equal "$status $output" "2 "
}

# --- backends, config

@test "backends: each backend that the shim has, and its options" {
  local name
  cuplug backends
  assert_success
  for name in $BACKENDS; do
    assert_line --regexp "^$(backend_name "$name") +[a-z]"
  done
  assert_line --regexp '^ +pool:reuse=fence +.*\(fence, completed\)'
}

@test "config: values, where they come from, and the exit status" {
  local file=$BATS_TEST_TMPDIR/options
  printf '\nbackend = pool:reuse=completed\nreport = yes\n' >"$file"
  SETTINGS=(CUPLUG_CONFIG="$file" CUPLUG_LOG=info)
  cuplug config
  assert_equal "$status $stderr" "0 "
  assert_line --regexp "^backend += pool:reuse=completed +# $file:2\$"
  assert_line --regexp "^log += info +# environment CUPLUG_LOG\$"
  assert_line --regexp "^follow += 1 +# default\$"
  assert_line "# pool:reuse = completed"
  printf '%s\n' "$output" >"$file.again" # its output is such a file
  SETTINGS=(CUPLUG_CONFIG="$file.again")
  cuplug config backend
  assert_equal "$status $output $stderr" "0 pool:reuse=completed "
  cuplug config CUPLUG_REPORT
  assert_output 1
  cuplug config pool:reuse
  assert_output completed
  cuplug config repport
  assert_equal "$status $output" "2 "
  [[ $stderr == *"config: repport: no such option (did you mean report?"* ]]
  SETTINGS=(CUPLUG_LOG=loud)
  cuplug config
  assert_equal "$status $stderr" "1 cuplug: CUPLUG_LOG=loud: no such choice (error, warn, info, debug)"
  assert_line --regexp "^log += warn +# default, instead of environment CUPLUG_LOG\$"
  SETTINGS=(CUPLUG_CONFIG="$ROOT/config/example.conf")
  cuplug config
  assert_equal "$status $stderr" "0 "
}

# --- doctor

@test "doctor: the driver, its version, fences and devices; a problem gives status 1" {
  needs_sim "asks for a certain driver"
  cuplug doctor
  assert_equal "$status $stderr" "0 "
  assert_line --regexp "^ok +driver: $DRIVER_PATH/libcuda.so.1, CUDA 13\.0\$"
  assert_line --regexp "^ok +fence: available"
  assert_line --regexp "^ok +gpu: 0: "
  SETTINGS=(SIMCUDA_DRIVER=12020)
  cuplug doctor
  assert_equal "$status" 0
  assert_line --regexp "^ok +driver: .*, CUDA 12\.2\$"
  assert_line --regexp "^note +fence: not available"
  SETTINGS=(LD_LIBRARY_PATH=)
  ldconfig -p 2>/dev/null | grep -q libcuda.so.1 && skip "this machine has a driver"
  cuplug doctor
  assert_equal "$status" 1
  assert_line --regexp "^problem driver: not found"
}

@test "doctor: shared and static runtimes, linked drivers, programs that open libraries (C22)" {
  # Lost otherwise: the reason why nothing is intercepted.
  needs_sim "the drivers of this build"
  cuplug doctor "$PROGRAMS/quiet_output.shared"
  assert_success
  assert_line --regexp '^ok +cudart: shared \(needs libcudart\.so\.13\)'
  assert_line --regexp '^ok +rpath: none'
  cuplug doctor "$PROGRAMS/quiet_output.static"
  assert_line --regexp '^ok +cudart: static'
  cuplug doctor "$PROGRAMS/zero_size_driver.link"
  assert_line --regexp '^ok +cudart: the driver is linked \(needs libcuda\.so\.1\)'
  cuplug doctor "$PROGRAMS/plugin_host"
  assert_line --regexp '^note +cudart: none in this file'
  assert_line --regexp '^note +deepbind: it opens libraries itself'
  cuplug doctor "$PROGRAMS/next_lookup"
  assert_line --regexp '^note +rpath: \$ORIGIN'
}

@test "doctor: programs that no preload reaches: setuid, static, 32-bit, musl, another processor, not there" {
  local copy=$BATS_TEST_TMPDIR/copy
  cp "$(type -P true)" "$copy"
  patch_copy() { "$PYTHON" -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(int(sys.argv[2])); f.write(bytes.fromhex(sys.argv[3]))' "$copy" "$@"; }
  cuplug doctor "$copy"
  assert_line --regexp "^ok +program: $copy, dynamic"
  assert_line --regexp '^ok +setuid: no'
  chmod u+s "$copy"
  cuplug doctor "$copy"
  assert_equal "$status" 1
  assert_line --regexp '^problem setuid: yes'
  patch_copy 4 01
  cuplug doctor "$copy"
  assert_line --regexp '^problem program: .* is a 32-bit program'
  patch_copy 4 02
  patch_copy 18 f300
  cuplug doctor "$copy"
  assert_line --regexp '^problem program: .* is built for another processor'
  cp "$(type -P true)" "$copy"
  "$PYTHON" -c '
import re, sys
data = open(sys.argv[1], "rb").read()
loader = re.search(rb"/lib[^\0]*/ld-linux[^\0]*", data).group()
open(sys.argv[1], "wb").write(data.replace(loader, b"/lib/ld-musl-x.so.1".ljust(len(loader), b"\0")))' "$copy"
  cuplug doctor "$copy"
  assert_line --regexp '^problem program: .* uses musl'
  cuplug doctor "$BATS_TEST_TMPDIR/missing"
  assert_line --regexp '^problem program: .*: not found'
  echo text >"$copy"
  cuplug doctor "$copy"
  assert_line --regexp '^problem program: .* is neither a program nor a script'
  head -c 100 "$(type -P true)" >"$copy" # a damaged file
  cuplug doctor "$copy"
  assert_equal "$status" 1
  CC="${CC:-cc}" compile -static -o "$copy" || skip "static programs cannot be built here"
  cuplug doctor "$copy"
  assert_line --regexp '^problem program: .* is linked statically'
}

@test "doctor: scripts lead to their interpreters" {
  local script=$BATS_TEST_TMPDIR/script
  printf '#!/usr/bin/env sh\n' >"$script"
  chmod +x "$script"
  cuplug doctor "$script"
  assert_line --regexp "^ok +script: $script, run by sh\$"
  assert_line --regexp '^ok +program: .*/sh, dynamic'
}

@test "doctor: other preloads, and refused options" {
  needs_plain_build "the sanitizer is another preload"
  SETTINGS=(LD_PRELOAD="$PROGRAMS/next_second.so $SHIM:/missing.so" CUPLUG_LOG=loud)
  cuplug doctor
  assert_equal "$status" 1
  assert_line --regexp "^ok +preload: $PROGRAMS/next_second.so\$"
  assert_line --regexp "^ok +preload: $SHIM \(cuplug\)\$"
  assert_line --regexp "^note +preload: /missing.so: cannot be read"
  assert_line --regexp '^problem options: '
  cp "$SHIM" "$BATS_TEST_TMPDIR/another.so"
  SETTINGS=(LD_PRELOAD="$BATS_TEST_TMPDIR/another.so")
  cuplug doctor
  assert_line --regexp "^note +preload: .*/another.so intercepts CUDA or dlsym, too"
}

@test "doctor --pid: what a running process has loaded, and from where (C22)" {
  needs_plain_build "the sanitizer is another preload"
  sleep 60 &
  local bare=$!
  LD_PRELOAD=$SHIM sleep 60 3>&- &
  local shimmed=$!
  while ! grep -q libcuplug "/proc/$shimmed/maps"; do :; done
  cuplug doctor --pid "$bare"
  local bare_output=$output bare_status=$status
  cuplug doctor --pid "$shimmed"
  kill "$bare" "$shimmed"
  assert_equal "$bare_status $status" "1 0"
  grep -q '^problem shim: not loaded' <<<"$bare_output"
  assert_line --regexp "^ok +shim: $SHIM\$"
  assert_line --regexp '^note +driver: not loaded: the process has made no CUDA call'
  cuplug doctor --pid 999999999
  assert_equal "$status" 1
  assert_line --regexp '^problem process: 999999999: no such process'
}

# --- the command itself

@test "help for every sub-command, and calls that are wrong: status 2, one line" {
  local name
  cuplug --version
  assert_output --regexp '^cuplug [0-9]+\.[0-9]+\.[0-9]+$'
  cuplug --help
  assert_success
  for name in $(awk '/^  [a-z]/ { print $1 }' <<<"$output"); do
    cuplug "$name" --help
    assert_success
    assert_line --index 0 --partial "usage: cuplug $name"
  done
  while read -r line; do
    # shellcheck disable=SC2086
    cuplug $line
    assert_equal "$line: $status, '$output', $(wc -l <<<"$stderr") line" "$line: 2, '', 1 line"
  done <<'END'

rnu
backends extra
config a b
config --xml
doctor --help-me
doctor --pid
doctor --pid x1
doctor a b
env --nosuch
END
}
