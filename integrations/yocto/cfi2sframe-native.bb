SUMMARY = "Adds an SFrame section to ELF programs and shared libraries"
LICENSE = "BSD-3-Clause"
LIC_FILES_CHKSUM = "file://${COMMON_LICENSE_DIR}/BSD-3-Clause;md5=550794465ba0ec5312d6919e203a55f9"

# The tool as "CGO_ENABLED=0 go build ./cmd/cfi2sframe" makes it, in files/ beside this recipe.
SRC_URI = "file://cfi2sframe"
UNPACKDIR ?= "${WORKDIR}"
S = "${UNPACKDIR}"

inherit native

do_install() {
	install -D -m 755 ${UNPACKDIR}/cfi2sframe ${D}${bindir}/cfi2sframe
}

INHIBIT_SYSROOT_STRIP = "1"
