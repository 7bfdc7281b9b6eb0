# For makefiles: include cfi2sframe.mk, then either of these.
#
# The last line of a rule that links, which converts the rule's target:
#
#   prog: prog.o
#   	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
#   	$(add_sframe)
#
# Or the linker folder, for everything that LDFLAGS are given to, built-in rules too:
#
#   LDFLAGS += $(sframe_ldflags)
#
# CFI2SFRAME is the tool, and CFI2SFRAME_FLAGS are more flags for it, such as --format 2.

CFI2SFRAME ?= cfi2sframe
export CFI2SFRAME_FLAGS

# What could not be converted goes away, so that the next make does not take it for done.
add_sframe = $(CFI2SFRAME) -q -p --update --skip-unsupported --no-sync --in-place $(CFI2SFRAME_FLAGS) $@ || \
	{ rm -f $@; false; }

sframe_ldflags := -B$(shell $(CFI2SFRAME) ld --print-dir)
ifeq ($(sframe_ldflags),-B)
$(error $(CFI2SFRAME) ld --print-dir failed; is CFI2SFRAME set, or cfi2sframe in the PATH?)
endif
