# Unit tests: parts of the shim linked into a program, without preloading and without a driver.

unit_tests := $(BUILD)/unit/live_test $(BUILD)/unit/heap_test $(BUILD)/unit/options_test $(BUILD)/unit/fence_test \
              $(BUILD)/unit/capture_test $(BUILD)/unit/cache_test $(BUILD)/unit/plugin_index_test

$(BUILD)/unit/live_test: tests/unit/live_test.c tests/unit/unit.h $(BUILD)/obj/shim/live.o $(BUILD)/obj/shim/pages.o
$(BUILD)/unit/heap_test: tests/unit/heap_test.c tests/unit/unit.h $(BUILD)/obj/backends/heap.o $(BUILD)/obj/backends/heap_tree.o $(BUILD)/obj/shim/pages.o
$(BUILD)/unit/options_test: tests/unit/options_test.c tests/unit/unit.h $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard config/*.c)) $(BUILD)/obj/shim/pages.o
$(BUILD)/unit/fence_test: tests/unit/fence_test.c tests/unit/quiet_shim.h tests/unit/unit.h $(BUILD)/obj/shim/fence.o $(BUILD)/obj/shim/debug.o
$(BUILD)/unit/capture_test: tests/unit/capture_test.c tests/unit/unit.h $(BUILD)/obj/shim/capture.o $(BUILD)/obj/shim/pages.o
$(BUILD)/unit/plugin_index_test: tests/unit/plugin_index_test.c tests/unit/unit.h $(BUILD)/obj/backends/plugin_index.o
cache_parts := $(patsubst %,backends/%.o,pool arena managed budget vmm cache cache_context cache_reclaim cache_share cache_stream cache_thread heap heap_tree) \
  $(patsubst %,shim/%.o,fence debug live pages)
$(BUILD)/unit/cache_test: tests/unit/cache_test.c tests/unit/quiet_shim.h tests/unit/unit.h $(cache_parts:%=$(BUILD)/obj/%)
$(BUILD)/unit/fence_test $(BUILD)/unit/capture_test $(BUILD)/unit/cache_test $(BUILD)/unit/plugin_index_test: CPPFLAGS += -D__CUDA_API_VERSION_INTERNAL
$(unit_tests):
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(lto) $(LDFLAGS) -o $@ $(filter %.c %.o,$^) -lpthread -ldl

.PHONY: check-unit
check-unit: $(unit_tests)
	@mkdir -p $(BUILD)/check
	@for test in $(unit_tests); do $$test || echo "not ok $$test: status $$?"; done | tee $(BUILD)/check/unit.log
	@awk '/^ok /{p++} /^not ok /{f++} END {print p+0, f+0, 0}' $(BUILD)/check/unit.log > $(BUILD)/check/unit.count
