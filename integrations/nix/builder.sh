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

# Paths of the build are other ones each time.
flags=(-O2 -g "-ffile-prefix-map=$PWD=.")
mkdir -p "$out/bin" "$lib/lib" "$debug/lib/debug"
printf 'int twice(int x) { return 2 * x; }\n' >twice.c
printf 'int twice(int); int main(void) { return twice(21) - 42; }\n' >main.c
gcc "${flags[@]}" -shared -fPIC twice.c -o "$lib/lib/libtwice.so"
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
