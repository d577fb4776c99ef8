# Every way of reaching the driver × every kind of allocation × every backend, as in ways.bats. A file of its own, as files are what runs side by
# side. (C9, C36)

load helpers/load
load helpers/kinds

DRIVER_KINDS="malloc async pitch managed from_pool malloc_freed_async async_freed_sync"

@test "driver, linked" { count_kinds driver_kinds.link "$DRIVER_KINDS"; }
@test "driver, linked, per-thread default streams" { count_kinds driver_kinds.link-ptds "$DRIVER_KINDS"; }
@test "driver, dlopen and dlsym" { count_kinds driver_kinds.dlsym "$DRIVER_KINDS"; }
@test "driver, dlopen and dlsym, per-thread default streams" { count_kinds driver_kinds.dlsym-ptds "$DRIVER_KINDS"; }
@test "driver, cuGetProcAddress (C9)" { count_kinds driver_kinds.getproc1 "$DRIVER_KINDS"; }
@test "driver, cuGetProcAddress, per-thread default streams (C9)" { count_kinds driver_kinds.getproc1-ptds "$DRIVER_KINDS"; }
@test "driver, cuGetProcAddress_v2 (C9)" { count_kinds driver_kinds.getproc2 "$DRIVER_KINDS"; }
@test "driver, cuGetProcAddress_v2, per-thread default streams (C9)" { count_kinds driver_kinds.getproc2-ptds "$DRIVER_KINDS"; }
@test "driver, cudaGetDriverEntryPoint (C9)" { count_kinds driver_kinds.entrypoint "$DRIVER_KINDS"; }
@test "driver, cudaGetDriverEntryPointByVersion (C9)" { count_kinds driver_kinds.entrypoint-version "$DRIVER_KINDS"; }
