# Kbuild: .sframe for vmlinux and modules, generated from any compiler's CFI. See README.md.

CFI2SFRAME ?= cfi2sframe

# Modules: add "$(call sframe_module,$@)" to the rule that links a .ko, after $(LD) -r (scripts/Makefile.modfinal: the end
# of cmd_ld_ko_o). Signing, stripping and compression come later, in modules_install.
sframe_module = $(CFI2SFRAME) -q --no-sync --for linux-module --in-place $(1)

# vmlinux, any linker: fills the bytes that the linker script reserves between __start_sframe and __end_sframe
# (scripts/link-vmlinux.sh: after the last vmlinux_link, before sorttable).
sframe_vmlinux = $(CFI2SFRAME) -q --no-sync --for linux-kernel --into __start_sframe:__end_sframe --in-place $(1)

# vmlinux, GNU ld 2.46 and later: converts vmlinux.o before the last link, which merges and sorts the sections of
# objects (scripts/Makefile.vmlinux_o: the end of cmd_ld_vmlinux.o).
sframe_vmlinux_o = $(CFI2SFRAME) -q --no-sync --for linux-kernel --in-place $(1)
