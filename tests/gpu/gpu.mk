# The programs of the GPU run: make -f tests/gpu/gpu.mk, from the repository root; needs nvcc. Each comparison
# program is built three ways, because each way reaches the driver differently: static cudart, shared cudart, and
# per-thread default streams. The correctness programs name their streams, so one build is enough.

BUILD     ?= build
CC        ?= cc
NVCC      ?= $(or $(shell command -v nvcc 2>/dev/null),/usr/local/cuda/bin/nvcc)
NVCC_ARCH ?= native
NVCCFLAGS ?= -std=c++17 -O2 -arch=$(NVCC_ARCH) -Xcompiler -Wall,-Wextra

out         := $(BUILD)/gpu
here        := tests/gpu
compared    := vector_streams pitched pool_graph
correctness := recycled_blocks free_waits_for_kernel persistent_kernel kernel_fault peer_kernels
headers     := $(wildcard $(here)/programs/*.cuh)

# Other runtimes than the toolkit's, where tests/gpu/prepare has put them: each with its own headers; those that only the
# compiler's package has (crt/) are the toolkit's.
toolkit     := $(or $(CUDA_HOME),$(abspath $(dir $(NVCC))..))
runtimes    := $(notdir $(wildcard .gpu/runtimes/*))

.PHONY: gpu-programs
gpu-programs: $(foreach way,static shared per_thread,$(compared:%=$(out)/%.$(way))) \
              $(correctness:%=$(out)/%.static) $(out)/libcounter.so $(runtimes:%=$(out)/runtime_vectors.%) \
              $(out)/runtime_vectors.13

$(out)/%.static: $(here)/programs/%.cu $(headers) | $(out)
	$(NVCC) $(NVCCFLAGS) -cudart static -o $@ $<

$(out)/%.shared: $(here)/programs/%.cu $(headers) | $(out)
	$(NVCC) $(NVCCFLAGS) -cudart shared -o $@ $<

$(out)/%.per_thread: $(here)/programs/%.cu $(headers) | $(out)
	$(NVCC) $(NVCCFLAGS) --default-stream per-thread -o $@ $<

$(out)/runtime_vectors.13: $(here)/programs/runtime_vectors.c | $(out)
	$(CC) -O2 -Wall -Wextra -I$(toolkit)/include -o $@ $< -L$(toolkit)/lib64 -lcudart -Wl,-rpath,$(toolkit)/lib64 -ldl -lpthread

$(out)/runtime_vectors.%: $(here)/programs/runtime_vectors.c | $(out)
	$(CC) -O2 -Wall -Wextra -I.gpu/runtimes/$*/include -I$(toolkit)/include -o $@ $< $(wildcard .gpu/runtimes/$*/lib/libcudart.so.*) \
	  -Wl,-rpath,$(abspath .gpu/runtimes/$*/lib) -ldl -lpthread -lrt

# The kernel of the measurements (tests/gpu/bench), for the machine's own GPU.
$(out)/spin.fatbin: $(here)/programs/spin.cu | $(out)
	$(NVCC) -fatbin -arch=$(NVCC_ARCH) -o $@ $<

$(out)/libcounter.so: $(here)/counter.c $(here)/counter.map | $(out)
	$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -Wl,--version-script=$(here)/counter.map \
	  -o $@ $<

$(out):
	mkdir -p $@
