# Sizes at both ends: zero, and more than there is. CUDA's answers (which differ from call to call) come back unchanged.

load helpers/load

# Like the bare driver, and no zero-size or failed allocation is counted.
like_bare_driver_and_counted() {
  local backend
  assert_like_bare_driver "$@"
  for backend in $BACKENDS; do
    count "$backend" "" "$@"
  done
}

@test "size zero, runtime (C40)" {
  # Lost otherwise: programs that free or compare what they got for nothing.
  like_bare_driver_and_counted zero_size.shared
  like_bare_driver_and_counted zero_size.static
  like_bare_driver_and_counted zero_size.ptds
}

@test "size zero, driver (C40)" {
  like_bare_driver_and_counted zero_size_driver.link
}

@test "zero-size allocations of sixteen threads never collide (C41)" {
  # Lost otherwise: the program, by a failed assertion in the tracker.
  local backend rounds=50000
  [ -z "$QUICK" ] || rounds=5000
  for backend in $BACKENDS; do
    count "$backend" "$backend" zero_size_threads.shared "$rounds"
  done
}

@test "sizes near the end of the number range are out of memory, not small (C42)" {
  # Lost otherwise: other blocks' data, as a wrapped size yields a small block with a large promise.
  like_bare_driver_and_counted huge_sizes.shared
  like_bare_driver_and_counted huge_sizes.static
  assert_line "small ones apart: yes"
}
