# shellcheck shell=bash
# Adds .sframe to the programs and shared libraries of all outputs, before debug information is split off
# (separateDebugInfo) and files are stripped, which both are hooks of fixupOutputHooks.
#
# dontSFrame=1 turns it off for a derivation; sframeFlags is what the tool is told, such as
# "--for=linux --min-coverage=99".

preFixupHooks+=(_sframeConvert)

_sframeConvert() {
	if [ -n "${dontSFrame-}" ]; then
		return 0
	fi
	local output files=() flags=()
	for output in $(getAllOutputNames); do
		[ -d "${!output}" ] || continue
		# Objects and archives are for linkers, of which not all can merge .sframe.
		readarray -d '' -O "${#files[@]}" files < <(find "${!output}" -type f \
			\( -perm /111 -o -name '*.so' -o -name '*.so.*' \) ! -name '*.o' ! -name '*.a' ! -name '*.ko' -print0 | sort -z)
	done
	if [ ${#files[@]} = 0 ]; then
		return 0
	fi
	# shellcheck disable=SC2154 # the derivation sets it
	# A list in derivations with __structuredAttrs, and words otherwise.
	if [[ $(declare -p sframeFlags 2>/dev/null) = 'declare -a'* ]]; then
		flags=("${sframeFlags[@]}")
	else
		read -r -a flags <<<"${sframeFlags-}"
	fi
	# Hard links have to be named in one call, and so that takes a long list.
	printf '%s\0' "${files[@]}" | xargs -0 -s 1000000 \
		@cfi2sframe@/bin/cfi2sframe -q -p --update --skip-unsupported --no-sync "${flags[@]}" --in-place --
}
