# What the tests of build systems share; bash, to be sourced. It makes the folder $tmp,
# which goes when the test ends, and puts the tool into $CFI2SFRAME and into the PATH.
#
# CFI2SFRAME: the tool; by default it is built from this tree.

[ "$(id -u)" = 0 ] || PATH=$PATH:/usr/sbin:/sbin
PATH=$PATH:/usr/local/go/bin:$HOME/.cargo/bin
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
set -E
# Linker folders of a tool that is in $tmp go with it. Go's cache stays where it is.
if command -v go >/dev/null; then
	GOCACHE=$(go env GOCACHE) GOMODCACHE=$(go env GOMODCACHE)
	export GOCACHE GOMODCACHE
fi
export XDG_CACHE_HOME=$tmp/cache
# What the user has set for other builds would be tested too.
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

# install PACKAGE...: has apt install what is missing.
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

# need PROGRAM:PACKAGE...: has apt install the packages of programs that are missing.
need() {
	local pair packages=()
	for pair; do
		command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
	done
	[ ${#packages[@]} = 0 ] || install_packages "${packages[@]}"
}

# has_sframe FILE...: each file has the section (readelf says so, and that its segment
# is there), and says at every pc what the CFI says.
has_sframe() {
	local file headers
	for file; do
		headers=$(readelf -lSW "$file") || fail "$file is no ELF file"
		grep -q ' \.sframe ' <<<"$headers" || fail "$file has no .sframe"
		grep -qE '^ +(GNU_SFRAME|LOOS\+0x474e554) ' <<<"$headers" || fail "$file has no PT_GNU_SFRAME"
	done
	"$CFI2SFRAME" check "$@" >"$tmp/check" || {
		cat "$tmp/check" >&2
		fail "check"
	}
}

# no_sframe FILE...: none has the section.
no_sframe() {
	local file
	for file; do
		[ -f "$file" ] || fail "there is no $file"
		! readelf -SW "$file" | grep -q ' \.sframe ' || fail "$file has an .sframe"
	done
}

# linked FOLDER: the linked ELF files below a folder, each inode once.
linked() {
	local file type
	find "$1" -type f -printf '%i %p\n' | sort -un | cut -d' ' -f2- | sort | while read -r file; do
		type=$(readelf -hW "$file" 2>/dev/null | sed -n 's/^ *Type: *\([A-Z]*\).*/\1/p' | head -n 1) || true
		case $type in EXEC | DYN) echo "$file" ;; esac
	done
}

# state FILE...: what a step that does nothing leaves as it is.
state() {
	stat -c '%n %i %y %s' "$@"
}

# outcome WANT COMMAND...: the command prints just this.
outcome() {
	local got
	got=$("${@:2}") || fail "$2 failed"
	[ "$got" = "$1" ] || fail "$2 printed $got, not $1"
}

# quietly COMMAND...: what the command says is shown if it fails, and is in $tmp/log.
quietly() {
	"$@" >"$tmp/log" 2>&1 || fail "$* failed: $(tail -n 40 "$tmp/log")"
}

# idle COMMAND: a build that has nothing to do links nothing, and leaves the files in ${made[@]} as they are.
idle() {
	local before
	before=$(state "${made[@]}")
	quietly sh -ec "$1"
	! grep -qE 'mode=link|CCLD|Linking|Compiling' "$tmp/log" || fail "$1: something was linked again: $(cat "$tmp/log")"
	[ "$before" = "$(state "${made[@]}")" ] || fail "$1: files have changed though there was nothing to do"
}

# done_with TEXT: says what has passed.
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
[ -x "$CFI2SFRAME" ] || fail "CFI2SFRAME=$CFI2SFRAME is no program"
mkdir -p "$tmp/path"
ln -s "$CFI2SFRAME" "$tmp/path/cfi2sframe"
export CFI2SFRAME PATH=$tmp/path:$PATH
