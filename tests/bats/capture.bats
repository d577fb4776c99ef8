# Stream capture: the driver forbids some calls meanwhile, and spoils the capture when they come. The shim must add none.

load helpers/load

@test "captures end as on the bare driver, whoever allocates meanwhile: direct" {
  # Lost otherwise: every program that captures graphs (PyTorch's CUDA graphs, JAX).
  without_shim capture.shared
  assert_success
  local expected=$output
  with_shim direct capture.shared
  assert_success
  assert_output "$expected"
}

@test "captures end as on the bare driver or better: pool, arena, managed" {
  local variant backend expected
  for variant in shared static ptds; do
    without_shim "capture.$variant"
    assert_success
    expected=$output
    for backend in pool arena managed; do
      with_shim "$backend" "capture.$variant"
      assert_equal "$backend: $status $stderr" "$backend: 0 "
      assert_nothing_spoiled "$expected" "$output"
      refute_output --partial "replay wrong"
    done
  done
}

@test "no capture is spoiled while other threads allocate and free" {
  # Lost otherwise: a training run, now and then, with an error that points nowhere.
  local expected="captures spoiled: 0"
  assert_says "$expected" capture_race.shared 800
  assert_says "$expected" capture_race.static-ptds 400
}
