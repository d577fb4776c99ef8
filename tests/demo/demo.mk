# The demonstration: one program for the simulated runtime, the same for the toolkit's where there is one.

cudart := $(firstword $(wildcard $(patsubst %/include,%/lib64/libcudart.so,$(CUDA_INC)) $(patsubst %/include,%/lib/libcudart.so,$(CUDA_INC))))

$(BUILD)/demo/demo: tests/demo/demo.c | sim
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -L$(BUILD)/sim -lcudart

$(BUILD)/demo/demo-gpu: tests/demo/demo.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -L$(dir $(cudart)) -Wl,-rpath,$(dir $(cudart)) -lcudart

demo: lib $(BUILD)/demo/demo $(if $(cudart),$(BUILD)/demo/demo-gpu)
	@tests/demo/run $(BUILD)
