"""GCC as it is installed, whose linker adds .sframe."""

load("@cfi2sframe//:toolchain.bzl", "sframe_link_feature")
load("@rules_cc//cc:cc_toolchain_config_lib.bzl", "tool_path")

def _gcc_config_impl(ctx):
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        toolchain_identifier = "gcc",
        compiler = "gcc",
        target_system_name = "local",
        target_cpu = "k8",
        target_libc = "local",
        cxx_builtin_include_directories = ["/usr/include", "/usr/lib/gcc", "/usr/lib/linux"],
        tool_paths = [
            tool_path(name = name, path = "/usr/bin/" + program)
            for name, program in {
                "ar": "ar",
                "cpp": "cpp",
                "gcc": "gcc",
                "gcov": "gcov",
                "ld": "ld",
                "nm": "nm",
                "objdump": "objdump",
                "strip": "strip",
            }.items()
        ],
        features = [sframe_link_feature(ctx.file.linker, flags = ["--min-coverage=99"])],
    )

gcc_config = rule(
    implementation = _gcc_config_impl,
    # It runs where the compiler does, and linker_files has it from there.
    attrs = {"linker": attr.label(allow_single_file = True, cfg = "exec", mandatory = True)},
    provides = [CcToolchainConfigInfo],
)
