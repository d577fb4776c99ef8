# The conformance program: one source for the simulated and the real driver, linked to the shared and the static runtime.
#
#   make conformance         builds $(programs_dir)/conformance.shared and .static (CUPLUG_TEST_DRIVER=gpu: for the real driver)
#   make check-conformance   compares the simulated driver, without the shim and under every backend, with the oracle; counts the runs in
#                            $(BUILD)/check/conformance.count
#   make check-teeth         plants the faults of tests/conformance/teeth in a copy of the tree, each of which must change a line; takes minutes

conformance_sources := $(wildcard tests/conformance/*.c)
conformance         := $(addprefix $(programs_dir)/conformance.,shared static)

# The real runtime is found where it was linked; the simulated one, beside its driver, by LD_LIBRARY_PATH.
conformance_rpath   := $(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),-Wl$(comma)-rpath$(comma)$(abspath $(cuda_lib)))
conformance_build    = $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -Itests/programs $(conformance_sources)

.PHONY: conformance check-conformance check-teeth
conformance: $(conformance) $(allocators_dir)/example.so

$(programs_dir)/conformance.shared: $(conformance_sources) tests/conformance/conform.h $(cudart_shared) $(libcuda) | $(programs_dir)
	$(conformance_build) $(conformance_rpath) $(cudart_shared) $(libcuda) $(system_libs) -o $@
$(programs_dir)/conformance.static: $(conformance_sources) tests/conformance/conform.h $(cudart_static) $(libcuda) | $(programs_dir)
	$(conformance_build) $(cudart_static) $(libcuda) $(system_libs) -o $@

check-conformance: lib sim conformance
	@BUILD=$(BUILD) tests/conformance/run check $(BUILD)/check/conformance

check-teeth:
	@CC="$(CC)" CUDA_INC=$(CUDA_INC) tests/conformance/bite
