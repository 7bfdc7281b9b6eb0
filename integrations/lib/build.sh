# Shared by the tests of build systems; to be sourced by bash. Creates the directory $tmp, which is removed when the
# test ends, and sets $CFI2SFRAME and PATH to find cfi2sframe.
#
# CFI2SFRAME: path of cfi2sframe; by default it is built from this tree.

[ "$(id -u)" = 0 ] || PATH=$PATH:/usr/sbin:/sbin
PATH=$PATH:/usr/local/go/bin:$HOME/.cargo/bin
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
set -E
# Linker directories are created in $tmp and removed with it. Go's caches are not moved to $tmp.
if command -v go >/dev/null; then
	GOCACHE=$(go env GOCACHE) GOMODCACHE=$(go env GOMODCACHE)
	export GOCACHE GOMODCACHE
fi
export XDG_CACHE_HOME=$tmp/cache
# The user's settings for other builds would affect the tests.
unset CFLAGS CXXFLAGS LDFLAGS DESTDIR MAKEFLAGS MAKELEVEL GOFLAGS RUSTFLAGS CFI2SFRAME_FLAGS CFI2SFRAMEFLAGS
unset CARGO_TARGET_DIR CMAKE_GENERATOR

quick=
case $*:$# in
:0) ;;
--quick:1) quick=1 ;;
*)
	echo "usage: $0 [--quick]" >&2
	exit 2
	;;
esac

# fail MESSAGE: ends the test.
fail() {
	echo "$0: $*" >&2
	exit 1
}

# install_packages PACKAGE...: installs missing packages with apt.
install_packages() {
	local missing=() package
	for package; do
		[ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" = 0 ] || fail "please install ${missing[*]}"
	apt-get -o DPkg::Lock::Timeout=600 update -qq
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends \
		"${missing[@]}" >"$tmp/apt.log" 2>&1 || {
		tail -n 20 "$tmp/apt.log" >&2
		fail "apt-get install ${missing[*]}"
	}
}

# need PROGRAM:PACKAGE...: installs the packages of missing programs.
need() {
	local pair packages=()
	for pair; do
		command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
	done
	[ ${#packages[@]} = 0 ] || install_packages "${packages[@]}"
}

# has_sframe FILE...: each file contains the section and its segment, according to readelf, and agrees with its CFI at
# every pc.
has_sframe() {
	local file headers
	for file; do
		headers=$(readelf -lSW "$file") || fail "$file is not an ELF file"
		grep -q ' \.sframe ' <<<"$headers" || fail "$file has no .sframe"
		grep -qE '^ +(GNU_SFRAME|LOOS\+0x474e554) ' <<<"$headers" || fail "$file has no PT_GNU_SFRAME"
	done
	"$CFI2SFRAME" check "$@" >"$tmp/check" || {
		cat "$tmp/check" >&2
		fail "check"
	}
}

# no_sframe FILE...: no file contains the section.
no_sframe() {
	local file
	for file; do
		[ -f "$file" ] || fail "$file is missing"
		! readelf -SW "$file" | grep -q ' \.sframe ' || fail "$file has an .sframe"
	done
}

# linked DIR: prints the linked ELF files below a directory, each inode once.
linked() {
	local file type
	find "$1" -type f -printf '%i %p\n' | sort -un | cut -d' ' -f2- | sort | while read -r file; do
		type=$(readelf -hW "$file" 2>/dev/null | sed -n 's/^ *Type: *\([A-Z]*\).*/\1/p' | head -n 1) || true
		case $type in EXEC | DYN) echo "$file" ;; esac
	done
}

# state FILE...: prints what an up-to-date build must not change.
state() {
	stat -c '%n %i %y %s' "$@"
}

# outcome WANT COMMAND...: the command must print exactly WANT.
outcome() {
	local got
	got=$("${@:2}") || fail "$2 failed"
	[ "$got" = "$1" ] || fail "$2 printed $got, not $1"
}

# quietly COMMAND...: writes the command's output to $tmp/log, and prints the last lines if it fails.
quietly() {
	"$@" >"$tmp/log" 2>&1 || fail "$* failed: $(tail -n 40 "$tmp/log")"
}

# idle COMMAND: an up-to-date build links nothing, and does not change the files in ${made[@]}.
idle() {
	local before
	before=$(state "${made[@]}")
	quietly sh -ec "$1"
	! grep -qE 'mode=link|CCLD|Linking|Compiling' "$tmp/log" || fail "$1: something was linked again: $(cat "$tmp/log")"
	[ "$before" = "$(state "${made[@]}")" ] || fail "$1: an up-to-date build changed files"
}

# done_with TEXT: prints what has passed, and the time.
done_with() {
	printf '%s: %s (%d s)\n' "$(basename "$here")" "$1" "$((SECONDS - since))"
	since=$SECONDS
}
since=$SECONDS

need gcc:gcc readelf:binutils
if [ -z "${CFI2SFRAME-}" ]; then
	need go:golang-go
	(cd "$here/../.." && CGO_ENABLED=0 go build -o "$tmp/tool/cfi2sframe" ./cmd/cfi2sframe)
	CFI2SFRAME=$tmp/tool/cfi2sframe
fi
CFI2SFRAME=$(readlink -f "$CFI2SFRAME")
[ -x "$CFI2SFRAME" ] || fail "CFI2SFRAME=$CFI2SFRAME is not a program"
mkdir -p "$tmp/path"
ln -s "$CFI2SFRAME" "$tmp/path/cfi2sframe"
export CFI2SFRAME PATH=$tmp/path:$PATH
