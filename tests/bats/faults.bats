# The faults planted in debug builds: the tests of order.bats must notice them. A test that cannot fail protects nobody.

load helpers/load

setup() {
  needs_debug_shim
}

a_race_on_purpose() {
  [[ $SANITIZER != *libtsan* ]] || skip "a data race on purpose, which the thread sanitizer reports word by word"
}

@test "without the fence, a block freed under a running kernel is handed out early, and seen (C49)" {
  a_race_on_purpose
  with_debug_shim nofence free_waits_for_kernel.shared non-blocking
  assert_output "non-blocking: old kernel done before new owner's write: no"
}

@test "with the record made in the allocation, the persistent kernel never ends, and is seen" {
  with_debug_shim record_in_alloc persistent_kernel.link wait-value
  assert_success
  assert_output "finished: no"
}

@test "without the fence, recycled blocks lose data, and it is seen" {
  a_race_on_purpose
  needs_sim "the GPU run has a program with real kernels for it"
  with_debug_shim nofence recycled_blocks.shared 2000
  assert_output --regexp "^recycled blocks: 2000, wrong: [1-9]"
}

@test "the debug build without a fault is right" {
  local SHIM=$DEBUG_SHIM
  with_shim pool free_waits_for_kernel.shared non-blocking
  assert_output "non-blocking: old kernel done before new owner's write: yes"
  with_shim pool persistent_kernel.link wait-value
  assert_output "finished: yes"
}
