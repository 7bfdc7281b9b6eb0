"""What both kinds of rules share. Older Bazel lacks RunEnvironmentInfo, and names this file in its error."""

# Relative to this file, whatever name the repository has in the workspace.
TOOLCHAIN_TYPE = Label("//:toolchain_type")

def run_environment(target):
    """Returns the environment that a target is run in, in a list of providers."""
    return [target[RunEnvironmentInfo]] if RunEnvironmentInfo in target else []
