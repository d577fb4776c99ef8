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
correctness := recycled_blocks free_waits_for_kernel persistent_kernel
headers     := $(wildcard $(here)/programs/*.cuh)

.PHONY: gpu-programs
gpu-programs: $(foreach way,static shared per_thread,$(compared:%=$(out)/%.$(way))) \
              $(correctness:%=$(out)/%.static) $(out)/libcounter.so

$(out)/%.static: $(here)/programs/%.cu $(headers) | $(out)
	$(NVCC) $(NVCCFLAGS) -cudart static -o $@ $<

$(out)/%.shared: $(here)/programs/%.cu $(headers) | $(out)
	$(NVCC) $(NVCCFLAGS) -cudart shared -o $@ $<

$(out)/%.per_thread: $(here)/programs/%.cu $(headers) | $(out)
	$(NVCC) $(NVCCFLAGS) --default-stream per-thread -o $@ $<

$(out)/libcounter.so: $(here)/counter.c $(here)/counter.map | $(out)
	$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -Wl,--version-script=$(here)/counter.map \
	  -o $@ $<

$(out):
	mkdir -p $@
