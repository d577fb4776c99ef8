# Contexts come and go: memory belongs to one of them and goes with it.

load helpers/load

@test "several contexts on one device, whichever is current at the free" {
  # Lost otherwise: data, when a block waits for the work of the wrong context.
  assert_like_bare_driver contexts.link
  refute_line --partial ": no"
  refute_output --regexp "wrong bytes [1-9]"
}

@test "a device reset with live, freed and pending memory" {
  # Lost otherwise: the program, by cached memory that no longer exists.
  assert_like_bare_driver context_reset.shared
  assert_like_bare_driver context_reset.static
  assert_line "lived three times"
  refute_output --partial "wrong bytes"
}

@test "contexts born behind a device wait, referenced twice, and destroyed while others allocate" {
  # Lost otherwise: data of the newcomer, a context still in use, or the program in a call about a context that is gone.
  assert_like_bare_driver SIMCUDA_MEMORY=640M context_life.link
  assert_line "written by a context born later: yes"
  assert_line "contexts that came and went: wrong 0"
  refute_output --regexp "wrong bytes.* [1-9]"
}

@test "one reference to the primary context is given back while a free waits for the device" {
  # Lost otherwise: the program, which hangs.
  local BACKENDS="$BACKENDS pool:free=wait"
  assert_says "released" release_beside_free.link
  BACKENDS=pool
  [ "$CUPLUG_TEST_DRIVER" = gpu ] || assert_says "released" SIMCUDA_DRIVER=12020 release_beside_free.link
}
