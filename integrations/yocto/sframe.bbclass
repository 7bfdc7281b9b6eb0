# Adds .sframe to the programs and shared libraries of packages.
#
# For all recipes: INHERIT += "sframe" in local.conf or the distro's configuration; for one:
# inherit sframe in it, or in a .bbappend. Off for one: SFRAME = "0" there, or
# SFRAME:pn-NAME = "0" in local.conf.
SFRAME ?= "1"
# What the tool is told beside the files, such as --for=linux or --min-coverage=99.
SFRAME_FLAGS ?= ""
# Machines that the tool knows; what runs on the build machine is never converted.
SFRAME_ARCHS ?= "x86_64 aarch64 aarch64_be s390x"

def sframe_wanted(d):
    return (
        bb.utils.to_boolean(d.getVar("SFRAME"))
        and not any(bb.data.inherits_class(c, d) for c in ("native", "nativesdk", "cross", "crosssdk", "nopackages"))
        and d.getVar("TARGET_ARCH") in d.getVar("SFRAME_ARCHS").split()
    )

do_package[depends] += "${@'cfi2sframe-native:do_populate_sysroot' if sframe_wanted(d) else ''}"
do_package[vardeps] += "SFRAME SFRAME_FLAGS"

# package.bbclass copies what was installed to PKGD, runs these functions, and divides each file in
# two then (split_and_strip_files): both halves get the same section headers.
PACKAGE_PREPROCESS_FUNCS += "${@'sframe_convert' if sframe_wanted(d) else ''}"

# The task runs under pseudo, which keeps owners by inode and sees nothing of what a static program does:
# the result is written elsewhere, and copied into the file by a program that it sees. Objects, archives
# and kernel modules are left alone.
sframe_convert() {
	result="${T}/sframe.$$"
	find "${PKGD}" -type f \( -perm /111 -o -name '*.so' -o -name '*.so.*' \) \
		! -name '*.o' ! -name '*.a' ! -name '*.ko' >"$result.files"
	while IFS= read -r file; do
		cfi2sframe -q --update --skip-unsupported --no-sync ${SFRAME_FLAGS} "$file" -o "$result" ||
			bbfatal "cfi2sframe failed; SFRAME = \"0\" turns it off for this recipe"
		cmp -s "$result" "$file" || {
			touch -r "$file" "$result.date"
			mode=$(stat -c %a "$file")
			chmod u+w "$file"
			cat "$result" >"$file"
			chmod "$mode" "$file"
			touch -r "$result.date" "$file"
		}
		rm -f "$result"
	done <"$result.files"
	rm -f "$result.files" "$result.date"
}
