# The driver's entry points: whatever a program is given leads to the function the bare driver would have given. Against a fake driver
# that says which of its functions was reached, for every symbol of the shim's table, eleven versions and five sets of flags.

load helpers/load

setup() {
  [ "$CUPLUG_TEST_DRIVER" = sim ] || skip "about a fake driver, no GPU needed"
  DRIVER_PATH=$FAKE
}

# The symbols of the shim's table.
hooked_symbols() {
  sed -n 's/^HOOK(\([A-Za-z0-9_]*\),.*/\1/p' "$ROOT/shim/hooks.def"
}

# fake_without SYMBOL: a fake driver that lacks the symbol.
fake_without() {
  DRIVER_PATH=$BATS_TEST_TMPDIR/without-$1
  mkdir -p "$DRIVER_PATH"
  printf '{ local: %s; };\n' "$1" >"$DRIVER_PATH/map"
  "${CC:-cc}" -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -Wl,--version-script="$DRIVER_PATH/map" \
    -o "$DRIVER_PATH/libcuda.so.1" "$FAKE/fake_driver.o" "$FAKE/fake_driver_stubs.o" -ldl -lpthread
}

@test "every name, version and flag leads where the driver leads (C11)" {
  # Lost otherwise: calls with the wrong number of arguments, when a new variant of a function is mistaken for an old one.
  assert_like_bare_driver lookup_probe
  assert_line "dlsym cuMemAlloc_v2: cuMemAlloc_v2"
  assert_line "cuMemAlloc 2000 0: 0 cuMemAlloc 0 0 cuMemAlloc 0 cuMemAlloc"
  assert_line "cuMemAlloc 13020 0: 0 cuMemAlloc_v3 0 0 cuMemAlloc_v3 0 cuMemAlloc_v3"
  assert_line "cuMemAllocAsync 12000 0x2: 0 cuMemAllocAsync_ptsz 0 0 cuMemAllocAsync_ptsz 0 cuMemAllocAsync_ptsz"
}

@test "a driver of the future is passed through in no time (C14)" {
  # Lost otherwise: every program after a driver upgrade.
  local CUPLUG_TEST_TIMEOUT=10
  assert_like_bare_driver FAKE_VERSION=99000 lookup_probe
  assert_line "unknown names passed through: 200, in time: yes"
}

@test "what the driver lacks is not offered, whichever symbol it is (C10)" {
  # Lost otherwise: a crash on older drivers, in a function that is not there.
  local symbol
  for symbol in $(hooked_symbols); do
    fake_without "$symbol"
    assert_like_bare_driver FAKE_MISSING="$symbol" lookup_probe
    assert_line --partial "dlsym $symbol: NULL"
  done
}

@test "the look-up function fetched through itself three times still leads to the shim (C8)" {
  # Lost otherwise: every runtime since CUDA 11.3, by a jump to NULL in its first call.
  local DRIVER_PATH=$BUILD/sim backend
  for backend in $BACKENDS; do
    count "$backend" "$backend" driver_kinds.deep1 malloc
    count "$backend" "$backend" driver_kinds.deep2 malloc
  done
}
