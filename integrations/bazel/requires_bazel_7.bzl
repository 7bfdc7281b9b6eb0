"""What both kinds of rules share. Older versions of Bazel lack RunEnvironmentInfo, and name this file in their error."""

# Relative to this file, whatever name the repository has in the workspace.
TOOLCHAIN_TYPE = Label("//:toolchain_type")

def run_environment(target):
    """Returns the environment that a target is run in, in a list of providers."""
    return [target[RunEnvironmentInfo]] if RunEnvironmentInfo in target else []
