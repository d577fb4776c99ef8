# cuplug: `make demo` shows what it does, `make check` runs every test; both install what they miss (scripts/setup).
#
# Variables: CC, BUILD, CUDA_HOME, DEBUG=1 (assertions and the planted faults of CUPLUG_DEBUG_FAULT), WERROR=1,
# SANITIZE=address|undefined|thread or several with commas (each variant builds into its own folder).

SANITIZE ?=
DEBUG    ?=
WERROR   ?= $(CI)
comma    := ,
san_name  = $(subst address,asan,$(subst undefined,ubsan,$(subst thread,tsan,$(subst $(comma),-,$1))))
variant  := $(if $(SANITIZE),/$(call san_name,$(SANITIZE)))$(if $(DEBUG),/debug)
BUILD    ?= build$(variant)

# CUDA's headers: the toolkit's, or the ones scripts/setup puts into build/deps.
nvcc := $(shell command -v nvcc 2>/dev/null)
find_headers = $(firstword $(patsubst %/cuda.h,%,$(wildcard $(addsuffix /include/cuda.h,$(CUDA_HOME) /usr/local/cuda \
                 $(if $(nvcc),$(patsubst %/bin/,%,$(dir $(realpath $(nvcc))))) $(CURDIR)/build/deps))))
CUDA_INC := $(find_headers)
ifeq ($(CUDA_INC)$(filter clean,$(MAKECMDGOALS)),)
  $(shell scripts/setup headers >&2)
  CUDA_INC := $(find_headers)
  ifeq ($(CUDA_INC),)
    $(error no CUDA headers: install the CUDA toolkit 13 or set CUDA_HOME to it)
  endif
endif

CPPFLAGS += -isystem $(CUDA_INC) -I. -D_GNU_SOURCE
CFLAGS   ?= $(if $(DEBUG),-O1,-O2) -gdwarf-4 # valgrind before 3.20 gives up on clang's version 5
CFLAGS   += -std=gnu11 -Wall -Wextra $(if $(WERROR),-Werror) $(if $(DEBUG),-DCUPLUG_DEBUG) \
            $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
LDFLAGS  += $(if $(SANITIZE),-fsanitize=$(SANITIZE))

shim_sources := $(wildcard shim/*.c backends/*.c config/*.c) $(wildcard shim/*.S)
shim_objects := $(patsubst %,$(BUILD)/obj/%.o,$(basename $(shim_sources)))
# The common allocation goes through half a dozen files: compiled as one program it takes fewer instructions. With gcc, where the linker can do it; the
# objects that clang makes so are for its own tools only.
lto := $(if $(SANITIZE)$(DEBUG),,$(shell $(CC) -dM -E -x c /dev/null 2>/dev/null | grep -q __clang__ || \
  { echo 'int x;' | $(CC) -flto=auto -fPIC -shared -x c - -o /dev/null 2>/dev/null && echo -flto=auto; }))
shim_cflags  := $(lto) -D__CUDA_API_VERSION_INTERNAL -fPIC -fvisibility=hidden -ftls-model=initial-exec -fasynchronous-unwind-tables

$(V).SILENT: # make V=1 shows the commands

.PHONY: all lib headers setup check demo clean
all: lib headers

lib: $(BUILD)/libcuplug.so

$(BUILD)/libcuplug.so: $(shim_objects) $(BUILD)/libcuplug.map
	$(CC) $(CFLAGS) $(lto) $(LDFLAGS) -shared -Wl,-soname,libcuplug.so -Wl,--version-script=$(BUILD)/libcuplug.map \
	  $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,noexecstack -Wl,--as-needed -o $@ $(shim_objects)

# What a plugin's author includes, as it is to be installed.
headers: $(BUILD)/include/cuplug/backend.h

$(BUILD)/include/cuplug/backend.h: backends/cuplug_backend.h
	@mkdir -p $(@D)
	cp $< $@

$(BUILD)/libcuplug.map: shim/libcuplug.map.in
	@mkdir -p $(@D)
	$(CC) -E -P -x c $< -o $@

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(shim_cflags) -MMD -MP -c $< -o $@

$(BUILD)/obj/%.o: %.S
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

setup:
	scripts/setup

# Everything, on the simulated driver. Each part writes "passed failed skipped" into check/*.count; one that does not get there has failed.
checks := check-unit check-sim check-bats check-conformance check-instructions
check:
	@rm -rf $(BUILD)/check && mkdir -p $(BUILD)/check && echo 0 1 0 | tee $(patsubst check-%,$(BUILD)/check/%.count,$(checks)) >/dev/null
	@scripts/setup packages
	@$(MAKE) --no-print-directory lib sim
	@$(MAKE) --no-print-directory -k $(checks); tests/count $(BUILD)/check

# The same in every way that this machine can build it, which is what CI runs; one sum over all. The variants do not stop one another.
sanitizers := address-undefined thread
.PHONY: check-all check-sanitizers
check-all:
	@$(MAKE) --no-print-directory -k check-gcc check-clang $(addprefix check-,$(sanitizers)) check-aarch64; \
	  tests/count build/check build/clang/check build/asan-ubsan/check build/tsan/check

check-sanitizers:
	@$(MAKE) --no-print-directory -k $(addprefix check-,$(sanitizers)); tests/count build/asan-ubsan/check build/tsan/check

.PHONY: check-gcc check-clang $(addprefix check-,$(sanitizers))
check-gcc:
	$(MAKE) --no-print-directory check WERROR=1 CC=gcc BUILD=build
# The other builds find what they find without what only takes long: another compiler and the thread sanitizer with two backends, too.
check-clang $(addprefix check-,$(sanitizers)): export LINKAGE := shared
check-clang $(addprefix check-,$(sanitizers)): export QUICK := 1
$(addprefix check-,$(sanitizers)): export CUPLUG_TEST_TIMEOUT := 240
check-clang: export BACKENDS := direct pool
check-thread: export BACKENDS := pool arena
check-clang:
	$(MAKE) --no-print-directory check WERROR=1 CC=clang BUILD=build/clang
$(addprefix check-,$(sanitizers)): check-%:
	$(MAKE) --no-print-directory check WERROR=1 CC=gcc SANITIZE=$(subst -,$(comma),$*) BUILD=build/$(call san_name,$*)

include $(wildcard tools/tools.mk tests/simcuda/simcuda.mk tests/tests.mk tests/conformance/conformance.mk tests/bench/bench.mk tests/unit/unit.mk tests/demo/demo.mk)

clean:
	rm -rf build

-include $(shim_objects:.o=.d)
