# The integration tests: tiny CUDA programs (tests/programs), built for the simulated driver or, with CUPLUG_TEST_DRIVER=gpu, for the
# real one, and the bats files that drive them (tests/bats).
#
#   make programs         builds $(BUILD)/programs (or programs-gpu): <program>.<variant>
#   make check-bats       runs tests/bats; leaves "<passed> <failed> <skipped>" in $(BUILD)/check/bats.count
#   make check-gpu-bats   the same on the real driver; counts in $(BUILD)/check/gpu-bats.count
#   make soak             10^8 random operations against a model; check-bats does 10^6 (OPERATIONS=, SEED=, PIECE= for others)
#   make check-soak-teeth  plants the faults of tests/soak/teeth in a copy of the tree, each of which the soak must notice; takes minutes
#   make soak-exits       ends and forks processes many thousand times
#   make check-aarch64    a part of them on aarch64, under qemu; counts in $(BUILD)/check/aarch64.count

CUPLUG_TEST_DRIVER ?= sim
BATS_OUTPUT        ?= $(BUILD)/check/$(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),gpu-)bats
BUILD_DEBUG        ?= $(BUILD)/debug

sim_dir      := $(BUILD)/sim
programs_dir := $(BUILD)/programs$(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),-gpu)
fake_dir     := $(BUILD)/fake

# The real runtime lies beside its headers; only libcuda's name matters at link time, so the simulated one serves in both cases.
cuda_lib := $(dir $(firstword $(wildcard $(foreach d,lib64 lib targets/$(shell uname -m)-linux/lib,$(CUDA_INC)/../$(d)/libcudart.so.1[3-9]))))
ifeq ($(CUPLUG_TEST_DRIVER),gpu)
cudart_shared := $(firstword $(wildcard $(cuda_lib)libcudart.so.1[3-9]))
cudart_static := $(cuda_lib)libcudart_static.a
else
cudart_shared := $(sim_dir)/libcudart.so.13
cudart_static := $(sim_dir)/libcudart_static.a
endif
libcuda        := $(sim_dir)/libcuda.so.1
system_libs    := -ldl -lpthread -lrt
per_thread     := -DCUDA_API_PER_THREAD_DEFAULT_STREAM
program_cflags  = $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -Itests/programs -MMD -MP -MF $@.d -MT $@

runtime_programs := runtime_kinds exits ipc free_waits_for_kernel recycled_blocks stream_reuse stream_destroyed thread_streams capture \
  capture_race context_reset out_of_memory stress two_devices double_free zero_size zero_size_threads huge_sizes fork_after \
  fork_ends fork_in_loader fork_loads quiet_output spawner api pluggable random_operations plugin_faults plugin_memory pointers failures_runtime pairs exhausted \
  graph_memory first_call peer peer_order thread_blocks freed_elsewhere
driver_programs  := reset_beside limits idle_memory release_beside_free persistent_kernel fork_after_driver contexts context_life foreign_streams foreign_ends no_context \
  free_unknown zero_size_driver rendezvous deepbind deepbind_runtime own_pools queries default_pool discipline composed null_arguments failures faulted \
  fault_elsewhere memory_short ipc_corners plugin_moments capture_full \
  pool_memory collective thread_handles stream_chain streams_gone hit_pairs footprints
plain_programs   := plugin_host fork_before next_threads lookup_probe own_handle loader_lock opens
linked_programs  := forwarding_main next_lookup next_alone
reaches          := link link-ptds dlsym dlsym-ptds getproc1 getproc1-ptds getproc2 getproc2-ptds deep1 deep2 entrypoint entrypoint-version
libraries        := forwarding_outer forwarding_inner next_first next_second bypass constructor slow_dlsym locked_vmm late_library
cxx              := $(shell command -v $(CXX) 2>/dev/null)
cxx_flags        := -std=c++17 -Wall -Wextra $(if $(WERROR),-Werror) -O2
plugins          := plugin_shared plugin_static $(if $(filter sim,$(CUPLUG_TEST_DRIVER)),plugin_cudart12)

programs := $(addprefix $(programs_dir)/, \
  $(foreach v,shared static ptds static-ptds,$(addsuffix .$(v),$(runtime_programs))) $(addsuffix .link,$(driver_programs)) \
  $(addprefix driver_kinds.,$(reaches)) hook_ways $(plain_programs) $(linked_programs) $(addsuffix .so,$(libraries) $(plugins)) \
  $(if $(cxx),late_frees.shared))

# Allocator libraries, built as a user would: with the installed header only.
allocators_dir   := $(programs_dir)/allocators
allocators       := $(addprefix $(allocators_dir)/,example.so passing.so plain.so pooled.so eager.so checker.so faulty.so inside.so other_abi.so \
                      small_table.so needs.so $(if $(cxx),thrower.so))
allocator_cflags  = -isystem $(CUDA_INC) -isystem $(BUILD)/include $(CFLAGS) $(LDFLAGS) -fPIC -shared -MMD -MP -MF $@.d -MT $@

.PHONY: programs allocators check-bats check-gpu-bats
allocators: $(allocators)
programs: sim $(programs) $(allocators) $(fake_dir)/libcuda.so.1

$(programs_dir):
	@mkdir -p $@

# A runtime program: with the shared and the static runtime, and with per-thread default streams.
$(programs_dir)/%.shared: tests/programs/%.c $(cudart_shared) | $(programs_dir)
	$(CC) $(program_cflags) $< $(cudart_shared) $(system_libs) -o $@
$(programs_dir)/%.ptds: tests/programs/%.c $(cudart_shared) | $(programs_dir)
	$(CC) $(program_cflags) $(per_thread) $< $(cudart_shared) $(system_libs) -o $@
$(programs_dir)/%.static: tests/programs/%.c $(cudart_static) | $(programs_dir)
	$(CC) $(program_cflags) $< $(cudart_static) $(system_libs) -o $@
$(programs_dir)/%.static-ptds: tests/programs/%.c $(cudart_static) | $(programs_dir)
	$(CC) $(program_cflags) $(per_thread) $< $(cudart_static) $(system_libs) -o $@

$(programs_dir)/late_frees.shared: tests/programs/late_frees.cc $(programs_dir)/late_library.so $(cudart_shared)
	$(CXX) -isystem $(CUDA_INC) $(cxx_flags) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' $^ $(system_libs) -o $@

# A driver program linked to the driver's library.
$(programs_dir)/%.link: tests/programs/%.c $(libcuda) | $(programs_dir)
	$(CC) $(program_cflags) $< $(libcuda) $(system_libs) -o $@

# driver_kinds.<way of reaching the driver>
reach_source = $(if $(filter deep%,$1),getproc,$(patsubst %1,%,$(patsubst %2,%,$(firstword $(subst -, ,$1)))))
reach_flags  = $(if $(findstring ptds,$1),$(per_thread)) $(if $(findstring 1,$1),-DVERSIONED=1) $(if $(findstring 2,$1),-DVERSIONED=2) \
  $(if $(filter deep%,$1),-DDEPTH=3) $(if $(filter %-version,$1),-DBY_VERSION)
reach_libs   = $(if $(filter link%,$1),$(libcuda)) $(if $(filter entrypoint%,$1),$(cudart_shared))
$(addprefix $(programs_dir)/driver_kinds.,$(reaches)): $(programs_dir)/driver_kinds.%: tests/programs/driver_kinds.c \
  $(wildcard tests/programs/reach_*.c) tests/programs/driver_table.def $(libcuda) $(cudart_shared) | $(programs_dir)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -Itests/programs $(call reach_flags,$*) $< tests/programs/reach_$(call reach_source,$*).c \
	  $(call reach_libs,$*) $(system_libs) -o $@

$(programs_dir)/hook_ways: tests/programs/hook_ways.c shim/hooks.def $(libcuda) $(cudart_shared) | $(programs_dir)
	$(CC) $(program_cflags) $< -Wl,--no-as-needed $(libcuda) $(cudart_shared) $(system_libs) -o $@

# Programs and libraries that are about the loader.
$(addprefix $(programs_dir)/,$(plain_programs)): $(programs_dir)/%: tests/programs/%.c | $(programs_dir)
	$(CC) $(program_cflags) $< $(system_libs) -o $@
$(programs_dir)/forwarding_main: tests/programs/forwarding_main.c $(programs_dir)/forwarding_outer.so
	$(CC) $(program_cflags) -Wl,-rpath,'$$ORIGIN' $^ -o $@
$(programs_dir)/next_lookup: tests/programs/next_lookup.c $(programs_dir)/next_first.so $(programs_dir)/next_second.so
	$(CC) $(program_cflags) -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed $^ -o $@
$(programs_dir)/next_alone: tests/programs/next_lookup.c $(programs_dir)/next_first.so
	$(CC) $(program_cflags) -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed $^ -o $@
$(addprefix $(programs_dir)/,$(addsuffix .so,$(libraries))): $(programs_dir)/%.so: tests/programs/%.c | $(programs_dir)
	$(CC) $(program_cflags) -fPIC -shared -Wl,-soname,$*.so $< -ldl -o $@

# Plugins that bring a runtime: the shared one, an older shared one, a copy of their own.
plugin_cflags  = $(program_cflags) -DPLUGIN -fPIC -shared -fvisibility=hidden
$(programs_dir)/plugin_shared.so: tests/programs/runtime_kinds.c $(cudart_shared) | $(programs_dir)
	$(CC) $(plugin_cflags) $< $(cudart_shared) $(system_libs) -o $@
$(programs_dir)/plugin_cudart12.so: tests/programs/runtime_kinds.c $(sim_dir)/libcudart.so.12 | $(programs_dir)
	$(CC) $(plugin_cflags) $< $(sim_dir)/libcudart.so.12 $(system_libs) -o $@
$(programs_dir)/plugin_static.so: tests/programs/runtime_kinds.c $(cudart_static) | $(programs_dir)
	$(CC) $(plugin_cflags) -Wl,--exclude-libs,ALL $< $(cudart_static) $(system_libs) -o $@

$(allocators_dir)/%.so: tests/plugins/%.c $(libcuda) | headers
	@mkdir -p $(@D)
	$(CC) $(allocator_cflags) $< $(libcuda) -lpthread -o $@
$(allocators_dir)/plain.so: tests/plugins/plain.c $(cudart_static) | headers
	@mkdir -p $(@D)
	$(CC) $(allocator_cflags) -Wl,--exclude-libs,ALL $< $(cudart_static) $(system_libs) -o $@
$(allocators_dir)/pooled.so: tests/plugins/plain.c $(cudart_static) | headers
	@mkdir -p $(@D)
	$(CC) $(allocator_cflags) -DPOOLED -Wl,--exclude-libs,ALL $< $(cudart_static) $(system_libs) -o $@
$(allocators_dir)/faulty.so: tests/plugins/faulty.c $(libcuda) | headers
	@mkdir -p $(@D)
	$(CC) $(allocator_cflags) -fexceptions $< $(libcuda) -lgcc_s -o $@
$(allocators_dir)/thrower.so: tests/plugins/thrower.cc $(libcuda) | headers
	@mkdir -p $(@D)
	$(CXX) -isystem $(CUDA_INC) $(cxx_flags) $(LDFLAGS) -fPIC -shared $< $(libcuda) -o $@
# Of another version; with a table that is too short; and one that needs a library which is not there.
$(allocators_dir)/other_abi.so: tests/plugins/checker.c $(libcuda) | headers
	@mkdir -p $(@D)
	$(CC) $(allocator_cflags) -DABI=7 $< $(libcuda) -lpthread -o $@
$(allocators_dir)/small_table.so: tests/plugins/checker.c $(libcuda) | headers
	@mkdir -p $(@D)
	$(CC) $(allocator_cflags) -DTABLE=20 $< $(libcuda) -lpthread -o $@
$(allocators_dir)/needs.so: tests/plugins/plain.c $(cudart_static) | headers
	@mkdir -p $(@D)
	echo 'void gone(void); void gone(void) {}' | $(CC) -x c -fPIC -shared -Wl,-soname,libgone.so - -o $(@D)/libgone.so
	$(CC) $(allocator_cflags) -Wl,--exclude-libs,ALL -Wl,--no-as-needed $< $(@D)/libgone.so $(cudart_static) $(system_libs) -o $@
	rm $(@D)/libgone.so

# The fake driver. Without sanitizers, as the tests link it again, each time with one symbol less.
$(fake_dir)/%.o: tests/programs/%.c tests/programs/program.h shim/hooks.def
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -Wall -Wextra $(if $(WERROR),-Werror) -O1 -g -fPIC -Itests/programs -c $< -o $@
$(fake_dir)/libcuda.so.1: $(fake_dir)/fake_driver.o $(fake_dir)/fake_driver_stubs.o
	$(CC) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 $^ $(system_libs) -o $@

check-bats: lib programs
	@$(MAKE) --no-print-directory DEBUG=1 BUILD=$(BUILD_DEBUG) lib
	BUILD=$(BUILD) BUILD_DEBUG=$(BUILD_DEBUG) CUPLUG_TEST_DRIVER=$(CUPLUG_TEST_DRIVER) CUDA_LIB=$(cuda_lib) CUDA_INC=$(CUDA_INC) CC="$(CC)" \
	  tests/bats/run $(BATS_OUTPUT) $(BATS_FILES)

# The same programs and tests for aarch64, built by Debian's cross compiler and run by qemu. It is slow: one backend. Not
# among them: what is about this machine's programs (children, command, config) and about the debug build (faults).
aarch64_compiler := aarch64-linux-gnu-gcc
aarch64_runner   := qemu-aarch64 -L /usr/aarch64-linux-gnu
aarch64_files    := loader lookup ways ways_driver queries preload frees order streams contexts fork sizes memory drivers report api pluggable backends capture plugins
aarch64_lacking  := $(strip $(foreach tool,$(aarch64_compiler) $(firstword $(aarch64_runner)),$(if $(shell command -v $(tool)),,$(tool))))

.PHONY: check-aarch64
check-aarch64:
ifeq ($(aarch64_lacking),)
	@$(MAKE) --no-print-directory CC=$(aarch64_compiler) CXX=$(aarch64_compiler:gcc=g++) BUILD=build/aarch64 lib programs
	RUNNER="$(aarch64_runner)" BACKENDS=pool CUPLUG_TEST_TIMEOUT=180 BUILD=build/aarch64 CC=$(aarch64_compiler) CUDA_INC=$(CUDA_INC) \
	  tests/bats/run $(BUILD)/check/aarch64 $(aarch64_files:%=tests/bats/%.bats)
else
	@mkdir -p $(BUILD)/check
	@echo "skipped: aarch64, no $(aarch64_lacking) (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
	@echo "0 0 1" >$(BUILD)/check/aarch64.count
endif

check-gpu-bats:
	@$(MAKE) --no-print-directory CUPLUG_TEST_DRIVER=gpu check-bats

# Random operations against a model, on the simulated driver only (tests/soak/soak.h).
soak_program := $(BUILD)/soak/soak
programs: $(if $(filter sim,$(CUPLUG_TEST_DRIVER)),$(soak_program))
$(soak_program): $(wildcard tests/soak/*.c tests/soak/*.h) tests/programs/program.h shim/cuplug.h $(cudart_shared) $(libcuda)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(filter %.c,$^) $(cudart_shared) $(libcuda) $(system_libs) -o $@

# What takes too long for every run: the same, many times over.
.PHONY: soak soak-exits
soak: lib programs
	BUILD=$(BUILD) tests/soak/run $(or $(OPERATIONS),100000000) $(or $(SEED),1) $(PIECE)
soak-exits: lib programs
	tests/soak/exits

.PHONY: check-soak-teeth
check-soak-teeth:
	@CC="$(CC)" CUDA_INC=$(CUDA_INC) tests/soak/bite

-include $(wildcard $(programs_dir)/*.d $(allocators_dir)/*.d)
