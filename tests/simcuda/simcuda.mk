# The simulated driver and runtime: make sim. Products in $(BUILD)/sim; nothing here depends on the shim.

simcuda_dir     := tests/simcuda
simcuda_out     := $(BUILD)/sim
simcuda_driver  := $(patsubst $(simcuda_dir)/%.c,$(BUILD)/obj/$(simcuda_dir)/%.o,$(wildcard $(simcuda_dir)/*.c))
simcuda_runtime := $(patsubst %.c,%.o,$(notdir $(wildcard $(simcuda_dir)/cudart/*.c)))
simcuda_cflags  := -fPIC -ftls-model=initial-exec -I$(simcuda_dir)
# Calls inside the library stay inside, whatever is preloaded; the classic hash table serves SIMCUDA_DRIVER.
simcuda_ldflags := -shared -Wl,-Bsymbolic-functions -Wl,--hash-style=both -Wl,--as-needed -Wl,-z,now

.PHONY: sim
sim: $(addprefix $(simcuda_out)/,libcuda.so.1 libcuda.so libcudart.so.13 libcudart.so libcudart.so.12 libcudart_static.a)

$(BUILD)/obj/$(simcuda_dir)/%.o: $(simcuda_dir)/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(simcuda_cflags) -MMD -MP -c $< -o $@

$(simcuda_out)/libcuda.so.1: $(simcuda_driver) $(simcuda_dir)/libcuda.map
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) $(simcuda_ldflags) -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,--version-script=$(simcuda_dir)/libcuda.map \
	  -o $@ $(simcuda_driver) -lpthread

# One runtime source, three products: versions 12 and 13 shared, 13 static.
define simcuda_cudart
$(BUILD)/obj/$(simcuda_dir)/cudart$(1)/%.o: $(simcuda_dir)/cudart/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(simcuda_cflags) $(2) -MMD -MP -c $$< -o $$@

$(simcuda_out)/libcudart.so.$(1): $(addprefix $(BUILD)/obj/$(simcuda_dir)/cudart$(1)/,$(simcuda_runtime))
	@mkdir -p $$(@D)
	echo 'libcudart.so.$(1) { global: cuda*; local: *; };' > $$@.map
	$$(CC) $$(CFLAGS) $$(LDFLAGS) $(simcuda_ldflags) -Wl,-soname,libcudart.so.$(1) -Wl,--version-script=$$@.map -o $$@ $$^ -lpthread -ldl
endef
$(eval $(call simcuda_cudart,13,-DSIM_CUDART=13000))
$(eval $(call simcuda_cudart,12,-DSIM_CUDART=12080))

$(simcuda_out)/libcudart_static.a: $(addprefix $(BUILD)/obj/$(simcuda_dir)/cudart13/,$(simcuda_runtime))
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^

$(simcuda_out)/libcuda.so: $(simcuda_out)/libcuda.so.1
	ln -sf libcuda.so.1 $@

$(simcuda_out)/libcudart.so: $(simcuda_out)/libcudart.so.13
	ln -sf libcudart.so.13 $@

-include $(simcuda_driver:.o=.d) $(foreach v,12 13,$(addprefix $(BUILD)/obj/$(simcuda_dir)/cudart$(v)/,$(simcuda_runtime:.o=.d)))

# The simulator's own tests, without the shim: ok and not ok lines, a summary, failure if one failed.
simcuda_tests := $(addprefix $(BUILD)/sim-selftest/,codes order captures pools spaces knobs runtime.shared runtime.static runtime.ptds)
simcuda_test  = $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -I$(simcuda_dir)/selftest $< -o $@

$(simcuda_tests): $(simcuda_dir)/selftest/selftest.h | sim
$(BUILD)/sim-selftest/%: $(simcuda_dir)/selftest/%.c
	@mkdir -p $(@D)
	$(simcuda_test) $(simcuda_out)/libcuda.so.1 -lpthread -ldl
$(BUILD)/sim-selftest/runtime.shared: $(simcuda_dir)/selftest/runtime.c
	@mkdir -p $(@D)
	$(simcuda_test) $(simcuda_out)/libcudart.so.13 $(simcuda_out)/libcuda.so.1 -lpthread
$(BUILD)/sim-selftest/runtime.static: $(simcuda_dir)/selftest/runtime.c
	@mkdir -p $(@D)
	$(simcuda_test) $(simcuda_out)/libcudart_static.a $(simcuda_out)/libcuda.so.1 -lpthread -ldl
$(BUILD)/sim-selftest/runtime.ptds: $(simcuda_dir)/selftest/runtime.c
	@mkdir -p $(@D)
	$(simcuda_test) -DCUDA_API_PER_THREAD_DEFAULT_STREAM $(simcuda_out)/libcudart.so.13 $(simcuda_out)/libcuda.so.1 -lpthread

.PHONY: sim-selftest check-sim
sim-selftest: sim $(simcuda_tests)
	@for test in $(simcuda_tests); do \
	  LD_LIBRARY_PATH=$(simcuda_out) SIMCUDA_DEVICES=$$(case $$test in */spaces) echo 2;; *) echo 1;; esac) timeout 120 $$test \
	    || echo "not ok $$test: status $$?"; \
	done > $(BUILD)/sim-selftest/log 2>&1; \
	cat $(BUILD)/sim-selftest/log; \
	awk '/^ok /{p++} /^not ok /{f++} END {printf "sim-selftest: %d passed, %d failed\n", p, f; exit f > 0 || p == 0}' $(BUILD)/sim-selftest/log

check-sim:
	@mkdir -p $(BUILD)/check
	@$(MAKE) --no-print-directory sim-selftest >$(BUILD)/check/sim.log 2>&1 || true; grep -v '^ok ' $(BUILD)/check/sim.log
	@awk '/^ok /{p++} /^not ok /{f++} END {print p+0, f+0, 0}' $(BUILD)/sim-selftest/log > $(BUILD)/check/sim.count
