"""Surveys of many files and packages, in shards that a cache keeps and other machines may do."""

load(":requires_bazel_7.bzl", "TOOLCHAIN_TYPE")

_ENDINGS = {"csv": "csv", "html": "html", "json": "json", "text": "txt"}

# A survey says where symbolic links lead to that it is given, and in sandboxes every file is one, to a
# path of the machine. So it gets copies, by the same names.
_SURVEY = """set -eu
    tool=$PWD/$1 part=$PWD/$2 flags=$3
    shift 3
    trap 'rm -rf "$part.files"' EXIT
    mkdir "$part.files"
    cp -RL --parents -t "$part.files" -- "$@"
    cd "$part.files"
    "$tool" survey --jobs=1 --report=json --report-file="$part" $flags -- "$@"
"""

def _sframe_survey_impl(ctx):
    if ctx.attr.shards < 1:
        fail("%s: shards = %d; at least 1 was expected" % (ctx.label, ctx.attr.shards))
    for report in ctx.attr.reports:
        if report not in _ENDINGS:
            fail("%s: reports has %s; %s was expected" % (ctx.label, report, ", ".join(sorted(_ENDINGS))))
    if not ctx.files.srcs:
        fail("%s: srcs has no files" % ctx.label)
    tool = ctx.toolchains[TOOLCHAIN_TYPE].sframe.tool

    # By their names, as --shard does, so that adding a file leaves all others in their shards. Each action has only
    # the files of its shard.
    shards = {}
    for file in ctx.files.srcs:
        shards.setdefault(hash(file.short_path) % ctx.attr.shards, []).append(file)
    parts = []
    for i in sorted(shards):
        part = ctx.actions.declare_file("%s.parts/%d.json" % (ctx.label.name, i))
        args = ctx.actions.args()
        args.add(tool.executable)
        args.add(part)
        args.add("--objects" if ctx.attr.objects else "")
        args.add_all(shards[i], expand_directories = False)
        ctx.actions.run_shell(
            command = _SURVEY,
            arguments = [args],
            tools = [tool],
            inputs = shards[i],
            outputs = [part],
            mnemonic = "SFrameSurvey",
            progress_message = "Surveying shard %d of %%{label}" % i,
            toolchain = TOOLCHAIN_TYPE,
        )
        parts.append(part)
    outs = []
    for report in ctx.attr.reports:
        out = ctx.actions.declare_file(ctx.label.name + "." + _ENDINGS[report])
        args = ctx.actions.args()
        args.add("merge")
        args.add("--report", report)
        args.add("--report-file", out)
        args.add("--")
        args.add_all(parts)
        ctx.actions.run(
            executable = tool,
            arguments = [args],
            inputs = parts,
            outputs = [out],
            env = {"SOURCE_DATE_EPOCH": "0"},  # pages have no date, so that they can be cached
            mnemonic = "SFrameSurveyMerge",
            progress_message = "Merging %{output}",
            toolchain = TOOLCHAIN_TYPE,
        )
        outs.append(out)
    return [DefaultInfo(files = depset(outs)), OutputGroupInfo(parts = depset(parts))]

sframe_survey = rule(
    doc = "What could be translated of all srcs, as cfi2sframe survey says it of them in one piece.",
    implementation = _sframe_survey_impl,
    attrs = {
        "srcs": attr.label_list(
            doc = "Files, folders and packages. What is no ELF file is counted.",
            mandatory = True,
            allow_files = True,
        ),
        "shards": attr.int(
            doc = "Into how many actions they are divided; one change does one of them again.",
            default = 64,
        ),
        "objects": attr.bool(doc = "Survey relocatable objects and archives, too."),
        "reports": attr.string_list(
            doc = "The forms of the result, each a file: json, html, csv, text.",
            default = ["json"],
        ),
    },
    toolchains = [TOOLCHAIN_TYPE],
)
