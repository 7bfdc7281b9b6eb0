ifeq ($(BR2_SFRAME),y)

# Hard links have to be named in one call, and so that takes a long list. What an earlier build
# converted stays.
define SFRAME_CONVERT
	find $(TARGET_DIR) -type f \( -perm /111 -o -name '*.so' -o -name '*.so.*' \) \
		! -name '*.o' ! -name '*.a' ! -name '*.ko' \
		$(foreach p,$(call qstrip,$(BR2_SFRAME_EXCLUDE)),! -path '$(TARGET_DIR)$(p)') -print0 | sort -z | \
	xargs -0 -r -s 1000000 $(call qstrip,$(BR2_SFRAME_TOOL)) -q -p --update --skip-unsupported --no-sync \
		$(call qstrip,$(BR2_SFRAME_FLAGS)) --in-place --
endef

# These run before the target folder is stripped, and again in every build.
TARGET_FINALIZE_HOOKS += SFRAME_CONVERT

endif
