# The shim among other libraries: look-ups that are none of its business keep their meaning, and programs without CUDA notice nothing.

load helpers/load

setup() {
  FORWARDING="cuFooCreate: 42"
}

@test "a library's forwarding function finds the inner one, from a copy of the shim under another name (C1)" {
  # Lost otherwise: cuDNN, which dies of endless recursion at first use.
  mkdir -p "$BATS_TEST_TMPDIR/x-y"
  cp "$SHIM" "$BATS_TEST_TMPDIR/x-y/renamed.so"
  local SHIM=$BATS_TEST_TMPDIR/x-y/renamed.so backend
  for backend in unset $BACKENDS; do
    with_shim "$backend" forwarding_main "$PROGRAMS/forwarding_inner.so"
    assert_success
    assert_output "$FORWARDING"
    assert_equal "$stderr" ""
  done
}

@test "RTLD_NEXT reaches the next library in line (C2)" {
  # Lost otherwise: `import torch`, which spins for ever in a hook that finds itself.
  local CUPLUG_TEST_TIMEOUT=5
  assert_says "next tool: second" next_lookup
}

@test "RTLD_NEXT finds nothing where nothing follows (C2)" {
  local CUPLUG_TEST_TIMEOUT=5
  assert_says "next tool: none" next_alone
}

@test "look-ups give the same answer the second time and from every thread (C3)" {
  # Lost otherwise: libraries that look a function up twice and call NULL.
  assert_like_bare_driver next_threads
  assert_output --partial "different answers: 0"
}

@test "the driver's look-ups by its own handle reach its own functions (C4)" {
  # Lost otherwise: WSL2, whose driver finds its implementation this way.
  local DRIVER_PATH=$FAKE backend
  without_shim lookup_probe
  assert_success
  assert_line --index 0 "cuInit: 0"
  for backend in $BACKENDS; do
    with_shim "$backend" lookup_probe
    assert_success
    assert_line --index 0 "cuInit: 0"
  done
}

@test "the library needs nothing but the C library (C17)" {
  # Lost otherwise: every child process, which the loader ends with status 127.
  needs_plain_build "the sanitizer is needed, too"
  run bash -c "readelf -d '$SHIM' | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libdl|libpthread|librt|ld-linux[^.]*)\.so\.[0-9]+$'"
  assert_output ""
}

@test "programs without CUDA run as before: shell, git, ssh, python (C17)" {
  needs_plain_build "the programs are not built with it"
  needs_own_processor "the programs are this machine's"
  local script='git --version; ssh -V 2>&1; python3 -c 1' tool backend
  for tool in git ssh python3; do
    command -v "$tool" >/dev/null || script=${script//"$tool"/true}
  done
  run --separate-stderr sh -c "$script"
  assert_success
  local expected=$output
  for backend in $BACKENDS; do
    run --separate-stderr env LD_PRELOAD="$SHIM" CUPLUG_BACKEND="$backend" CUPLUG_REPORT=1 CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" sh -c "$script"
    assert_success
    assert_output "$expected"
    assert_equal "$stderr" ""
  done
  run find "$BATS_TEST_TMPDIR" -name 'stats.*'
  assert_output ""
}
