# Every way of reaching CUDA × every kind of allocation × every backend: the memory is right and each call is counted exactly once.
# (C9, C12, C15, C36) Lost otherwise: allocations that nobody sees, or that are reported twice.

load helpers/load
load helpers/kinds

RUNTIME_KINDS="malloc async pitch 3d managed from_pool malloc_freed_async async_freed_sync"

# count_plugins KINDS PLUGIN…: in one process, each plugin with its own runtime; the expected numbers add up.
count_plugins() {
  local backend kind kinds=$1 file plugins=()
  shift
  for plugin in "$@"; do plugins+=("$PROGRAMS/$plugin.so"); done
  for backend in $BACKENDS; do
    for kind in $kinds; do
      rm -f "$BATS_TEST_TMPDIR"/stats.*
      with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" plugin_host "$kind" "${plugins[@]}"
      assert_equal "$kind $backend: $status $stderr" "$kind $backend: 0 "
      assert_equal "$(grep -c ": right" <<<"$output")" $#
      assert_equal "$(grep -cxF "errors: cudaSuccess, cudaErrorMemoryAllocation, cudaErrorMemoryAllocation, cudaSuccess" <<<"$output")" $#
      check_stats "totals.allocations=$((4 * $#))" "totals.frees=$((4 * $#))" totals.live_blocks=0 \
        "backends.$(counted_as "$backend" "$kind").allocations=$((4 * $#))"
    done
  done
}

@test "runtime, shared" { count_kinds runtime_kinds.shared "$RUNTIME_KINDS"; }
@test "runtime, static (C12)" { count_kinds runtime_kinds.static "$RUNTIME_KINDS"; }
@test "runtime, shared, per-thread default streams" { count_kinds runtime_kinds.ptds "$RUNTIME_KINDS"; }
@test "runtime, static, per-thread default streams" { count_kinds runtime_kinds.static-ptds "$RUNTIME_KINDS"; }

@test "a runtime that only a plugin brings, opened RTLD_LOCAL (C15)" { count_plugins "$RUNTIME_KINDS" plugin_shared; }
@test "a plugin with a static runtime (C15)" { count_plugins "$RUNTIME_KINDS" plugin_static; }
@test "two plugins, one shared and one static runtime" { count_plugins "malloc async managed" plugin_shared plugin_static; }

@test "two plugins with the runtimes of CUDA 12 and 13: each reaches its own (C15)" {
  needs_sim "only one version of the runtime is installed"
  count_plugins "$RUNTIME_KINDS" plugin_shared plugin_cudart12
  with_shim pool plugin_host malloc "$PROGRAMS/plugin_cudart12.so" "$PROGRAMS/plugin_shared.so"
  assert_success
  assert_line "runtime 12"
  assert_line "runtime 13"
}

@test "the program's own pools serve what it asks of them, and say so (C94)" {
  # Lost otherwise: programs that keep their memory apart by pools, as soon as a backend serves what was meant for one.
  local backend way
  for way in cuDeviceSetMemPool cuMemSetMemPool; do
    assert_like_bare_driver own_pools.link "$way"
    for backend in $BACKENDS; do
      count "$backend" direct own_pools.link "$way"
      assert_line "allocated from the pool: yes"
      assert_line "allocated from the current pool: yes"
      assert_equal "$(grep -c "^allocated: used 1048576, " <<<"$output")" 2
      assert_line "next owner: wrong bytes 0, from the pool: yes"
    done
  done
}

@test "the same program with static and with shared runtime gives the same figures (C12)" {
  local backend variant kind
  for backend in $BACKENDS; do
    for variant in shared static; do
      rm -f "$BATS_TEST_TMPDIR"/stats.*
      with_shim "$backend" CUPLUG_STATS="$BATS_TEST_TMPDIR/stats.%p" "stress.$variant" 40
      assert_success
      check_stats totals.allocations=640 totals.frees=640 totals.live_blocks=0 totals.live_bytes=0
    done
  done
}

@test "every function of the table is reached by every way: linked, dlsym, cuGetProcAddress in all forms, the runtime's entry points (C9)" {
  # Lost otherwise: calls that nobody sees. Made from the table, so a new row is tried as soon as it is there.
  local driver drivers=13000 out=$BATS_TEST_TMPDIR exact
  needs_own_processor "reads addresses of this machine's build"
  [ "$CUPLUG_TEST_DRIVER" != sim ] || drivers="13000 12020 11080"
  for driver in $drivers; do
    without_shim SIMCUDA_DRIVER="$driver" hook_ways
    assert_equal "$status $stderr" "0 "
    echo "$output" >"$out/bare"
    with_shim pool SIMCUDA_DRIVER="$driver" hook_ways
    assert_equal "$status $stderr" "0 "
    echo "$output" >"$out/shim"
    exact=$([ "$CUPLUG_TEST_DRIVER $driver" != "sim 13000" ] || echo exact)
    run "$PYTHON" "$ROOT/tests/bats/helpers/hooks.py" "$ROOT/shim/hooks.def" "$SHIM" "$out/bare" "$out/shim" ${exact:+exact}
    assert_output ""
  done
}
