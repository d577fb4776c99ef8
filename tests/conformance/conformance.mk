# The conformance program: one source for the simulated and the real driver, linked to the shared and the static runtime.
#
#   make conformance   builds $(programs_dir)/conformance.shared and .static (CUPLUG_TEST_DRIVER=gpu: for the real driver)
#
# tests/conformance/run runs and compares them.

comma               := ,
conformance_sources := $(wildcard tests/conformance/*.c)
conformance         := $(addprefix $(programs_dir)/conformance.,shared static)

# The real runtime is found where it was linked; the simulated one, beside its driver, by LD_LIBRARY_PATH.
conformance_rpath   := $(if $(filter gpu,$(CUPLUG_TEST_DRIVER)),-Wl$(comma)-rpath$(comma)$(abspath $(cuda_lib)))
conformance_build    = $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -Itests/programs $(conformance_sources)

.PHONY: conformance
conformance: $(conformance)

$(programs_dir)/conformance.shared: $(conformance_sources) tests/conformance/conform.h $(cudart_shared) $(libcuda) | $(programs_dir)
	$(conformance_build) $(conformance_rpath) $(cudart_shared) $(libcuda) $(system_libs) -o $@
$(programs_dir)/conformance.static: $(conformance_sources) tests/conformance/conform.h $(cudart_static) $(libcuda) | $(programs_dir)
	$(conformance_build) $(cudart_static) $(libcuda) $(system_libs) -o $@
