# The cuplug command, and the documents that are made from config/options.def.
#
#   make command   builds $(BUILD)/cuplug; it looks for libcuplug.so beside itself
#   make docs      writes the options into README.md and tools/man/libcuplug.7 (a test compares them)

command_objects := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tools/*.c config/*.c) shim/pages.c)

.PHONY: command docs
all: command
command: $(BUILD)/cuplug

$(BUILD)/cuplug: $(command_objects)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl

# The bats tests run it.
check-bats: command

docs: $(BUILD)/cuplug
	tools/docs $(BUILD)/cuplug

-include $(command_objects:.o=.d)
