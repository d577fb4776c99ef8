# Measurements. They depend on the machine, so none is part of make check, but the instruction counts.
#
#   make bench                measures on the simulated driver: what needs no GPU, and what the preload costs a program without CUDA
#   make bench-programs       builds $(BUILD)/bench (bench-gpu with CUPLUG_TEST_DRIVER=gpu): the worker and the allocators
#   make check-instructions   compares the instructions of a pair with tests/bench/instructions; counts in $(BUILD)/check
#   make bench-instructions   writes that file anew
#
# On a GPU: tests/gpu/bench.

bench_dir     := $(BUILD)/bench$(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),-gpu)
bench_sources := $(wildcard tests/bench/*.c)
bench_cflags  := $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -Wl,-z,now
# Without tail calls, which would hide the library from whoever looks for the caller.
bench_library := $(bench_cflags) -fPIC -shared -fno-optimize-sibling-calls
bench_rpath   := $(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),-Wl$(comma)-rpath$(comma)$(abspath $(cuda_lib)))

# Peers, where they are: PyTorch's folder (TORCH=…, of the package) and RMM as tests/gpu/prepare unpacks it.
TORCH         ?=
rmm           := $(if $(wildcard .gpu/rmm/include),.gpu/rmm)
peer_cxxflags := -std=c++17 -O2 -fPIC -shared -isystem $(CUDA_INC)
peers         := $(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),$(if $(TORCH),torch) $(if $(rmm),rmm))

.PHONY: bench bench-startup bench-patterns bench-programs bench-instructions check-instructions
bench: bench-startup bench-patterns

bench-startup: lib
	tests/bench/startup $(BUILD)/libcuplug.so

bench-patterns: lib sim bench-programs
	tests/bench/run $(BUILD)

bench-programs: $(addprefix $(bench_dir)/,worker $(addsuffix .so,driver shared static $(peers)))

$(bench_dir)/worker: $(bench_sources) tests/bench/bench.h tests/bench/allocator.h $(libcuda)
	@mkdir -p $(@D)
	$(CC) $(bench_cflags) $(bench_sources) $(libcuda) -lm $(system_libs) -o $@
$(bench_dir)/%.so: tests/bench/allocators/cuda.c tests/bench/allocator.h shim/cuplug.h $(libcuda) $(cudart_shared) $(cudart_static)
	@mkdir -p $(@D)
	$(CC) $(bench_library) -DREACH='"$*"' $(bench_reach) -Wl,--exclude-libs,ALL $< $(bench_runtime) $(libcuda) $(system_libs) -o $@
$(bench_dir)/driver.so: bench_reach := -DBY_DRIVER
$(bench_dir)/shared.so: bench_runtime = $(cudart_shared) $(bench_rpath)
$(bench_dir)/static.so: bench_runtime = $(cudart_static)

$(bench_dir)/torch.so: tests/bench/allocators/torch.cc tests/bench/allocator.h
	@mkdir -p $(@D)
	$(CXX) $(peer_cxxflags) -isystem $(TORCH)/include $< -L$(TORCH)/lib -lc10_cuda -lc10 -Wl,-rpath,$(TORCH)/lib -o $@
$(bench_dir)/rmm.so: tests/bench/allocators/rmm.cc tests/bench/allocator.h
	@mkdir -p $(@D)
	$(CXX) -isystem $(rmm)/include -isystem $(rmm)/include/rapids $(peer_cxxflags) $< $(rmm)/librmm.so $(rmm)/librapids_logger.so \
	  $(cudart_shared) $(bench_rpath) -Wl,-rpath,$(abspath $(rmm)) -o $@

check-instructions: $(if $(SANITIZE)$(DEBUG),,lib sim bench-programs)
	@mkdir -p $(BUILD)/check
ifneq ($(SANITIZE)$(DEBUG),)
	@echo "skipped: instruction counts, not in a sanitizer's or a debug build"
	@echo "0 0 1" >$(BUILD)/check/instructions.count
else
	@tests/bench/count check $(BUILD) "$(CC) $(CFLAGS)" $(BUILD)/check/instructions.count
endif

bench-instructions: lib sim bench-programs
	@tests/bench/count update $(BUILD) "$(CC) $(CFLAGS)"
