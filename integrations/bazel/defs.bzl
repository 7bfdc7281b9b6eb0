"""Programs and libraries with an .sframe section, for rules_cc and whatever else makes ELF files."""

load(":requires_bazel_7.bzl", "TOOLCHAIN_TYPE", "run_environment")

SFrameInfo = provider(
    doc = "The tool and its usual flags.",
    fields = {
        "tool": "FilesToRunProvider of cfi2sframe",
        "flags": "flags of every conversion",
    },
)

def _sframe_toolchain_impl(ctx):
    return [platform_common.ToolchainInfo(sframe = SFrameInfo(
        tool = ctx.attr.tool[DefaultInfo].files_to_run,
        flags = ctx.attr.flags,
    ))]

sframe_toolchain = rule(
    doc = "Says which file the tool is. A toolchain() of the type //:toolchain_type refers to it.",
    implementation = _sframe_toolchain_impl,
    attrs = {
        "tool": attr.label(
            doc = "The tool: a file of the workspace, of an archive, or what a rule builds.",
            mandatory = True,
            executable = True,
            allow_files = True,
            cfg = "exec",
        ),
        "flags": attr.string_list(doc = "Flags of every conversion, such as --for=linux."),
    },
)

def _sframe_binary_impl(ctx):
    src = ctx.attr.src[DefaultInfo]
    if src.files_to_run.executable:
        file = src.files_to_run.executable
    else:
        files = src.files.to_list()
        if len(files) != 1:
            fail("%s: src has %d files; one program or shared library was expected" % (ctx.label, len(files)))
        file = files[0]
    out = ctx.actions.declare_file(ctx.attr.out or ctx.label.name)
    sframe = ctx.toolchains[TOOLCHAIN_TYPE].sframe
    args = ctx.actions.args()
    args.add_all(["--quiet", "--update"]) # the linker may have made the section already
    args.add_all(sframe.flags)
    args.add_all(ctx.attr.flags)
    args.add("--output", out)
    args.add("--", file)
    ctx.actions.run(
        executable = sframe.tool,
        arguments = [args],
        inputs = [file],
        outputs = [out],
        mnemonic = "SFrame",
        progress_message = "Adding .sframe to %{input}",
        toolchain = TOOLCHAIN_TYPE,
    )
    return [DefaultInfo(
        executable = out,
        files = depset([out]),
        runfiles = ctx.runfiles([out]).merge(src.default_runfiles),
    )] + run_environment(ctx.attr.src)

sframe_binary = rule(
    doc = "The program or shared library src with an .sframe section; it can be run as src can.",
    implementation = _sframe_binary_impl,
    executable = True,
    attrs = {
        "src": attr.label(
            doc = "A cc_binary, cc_shared_library or other target with one ELF file.",
            mandatory = True,
            allow_files = True,
        ),
        "out": attr.string(doc = "Name of the new file; by default that of the target."),
        "flags": attr.string_list(doc = "Flags of this conversion, after those of the toolchain."),
    },
    toolchains = [TOOLCHAIN_TYPE],
)

def _sframe_linker_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    tool = ctx.toolchains[TOOLCHAIN_TYPE].sframe.tool
    ctx.actions.run_shell(
        command = """set -eu
            cp -- "$2" "$1/ld"
            chmod 755 "$1/ld"
            for name in ld.bfd ld.gold ld.lld ld.mold; do
                ln -s ld "$1/$name"
            done""",
        arguments = [out.path, tool.executable.path],
        inputs = [tool.executable],
        outputs = [out],
        mnemonic = "SFrameLinker",
        progress_message = "Making the linkers of %{label}",
        toolchain = TOOLCHAIN_TYPE,
    )
    return [DefaultInfo(files = depset([out]))]

sframe_linker = rule(
    doc = """A folder for -B of gcc and clang, in which every linker is the tool: it runs the real one and converts what that links.

    sframe_link_feature of toolchain.bzl makes a toolchain use it. In linkopts it comes too late if the toolchain has a -B of its
    own, as the one has that Bazel makes of the installed gcc.""",
    implementation = _sframe_linker_impl,
    toolchains = [TOOLCHAIN_TYPE],
)
