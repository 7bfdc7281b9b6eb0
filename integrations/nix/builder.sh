# shellcheck shell=bash
# Builds a program with a library, and runs hooks in the order of stdenv's fixupPhase: preFixupHooks, and
# then for each output what separateDebugInfo and strip do.
# shellcheck disable=SC2154 # outputs and their paths come from the derivation
set -euo pipefail

preFixupHooks=()
getAllOutputNames() {
	echo "$outputs"
}
# shellcheck source=setup-hook.sh disable=SC1091
source "$hook"

# The folder that Nix makes is another one each time, and its path is in the debug information.
mkdir -p /tmp/sframe-test
cd /tmp/sframe-test
flags=(-O2 -g)
mkdir -p "$out/bin" "$lib/lib" "$debug/lib/debug"
printf 'int twice(int x) { return 2 * x; }\n' >twice.c
printf 'int twice(int); int main(void) { return twice(21) - 42; }\n' >main.c
gcc "${flags[@]}" -shared -fPIC twice.c -o "$lib/lib/libtwice.so"
# As the path of the library, which Nix knows of and allows for, would make it another one each time.
flags+=("-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567")
gcc "${flags[@]}" main.c -L"$lib/lib" -ltwice -Wl,-rpath,"$lib/lib" -o "$out/bin/prog"
ln "$out/bin/prog" "$out/bin/other"
printf '#!/bin/sh\n' >"$out/bin/script"
chmod 755 "$out/bin/script"
chmod 644 "$lib/lib/libtwice.so"

for f in "${preFixupHooks[@]}"; do
	"$f"
done
for f in "$out/bin/prog" "$lib/lib/libtwice.so"; do
	objcopy --only-keep-debug "$f" "$debug/lib/debug/${f##*/}.debug"
	strip -S "$f"
done
