"""For the configuration of C++ toolchains that link with an sframe_linker."""

load("@rules_cc//cc:action_names.bzl", "ALL_CC_LINK_ACTION_NAMES")
load("@rules_cc//cc:cc_toolchain_config_lib.bzl", "env_entry", "env_set", "feature", "flag_group", "flag_set")

def sframe_link_feature(linker, flags = [], enabled = True):
    """Returns the feature "sframe", which adds .sframe to all that is linked.

    Args:
      linker: File of an sframe_linker, of an attribute with cfg = "exec"; linker_files of the cc_toolchain
          have to hold it, too
      flags: flags of the tool
      enabled: whether targets have it without asking; they refuse it by features = ["-sframe"]
    """
    return feature(
        name = "sframe",
        enabled = enabled,
        flag_sets = [flag_set(
            actions = ALL_CC_LINK_ACTION_NAMES,
            flag_groups = [flag_group(flags = ["-B" + linker.path])],
        )],
        env_sets = [env_set(
            actions = ALL_CC_LINK_ACTION_NAMES,
            env_entries = [env_entry(key = "CFI2SFRAME_FLAGS", value = " ".join(flags))],
        )] if flags else [],
    )
