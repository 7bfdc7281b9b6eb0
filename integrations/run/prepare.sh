#!/bin/sh
# Writes the sections of the files that a program loads, and prints which variables sframe-run sets for it.
#
# sframe-run.c contains this script, and runs it as "sh -c SCRIPT sframe-run PROGRAM [ARGUMENT...]". Variables are its
# other input: options (also, preload, infer, quiet, verbose), the values of PATH and LD_LIBRARY_PATH (search,
# libraries), the directory of sframe-run (here), a byte between fields (separator) and, after a program has ended, the
# directory of the dynamic linker's reports (learned). Detached sections are in ${XDG_CACHE_HOME:-~/.cache}/cfi2sframe,
# by build-id; with --infer, in cfi2sframe-infer.
#
# Standard output: "set NAME=VALUE", "say MESSAGE", "exit STATUS" and, at the end, "run", each followed by 0. Standard
# error is /dev/null. 3 is that of sframe-run.
# shellcheck disable=SC2154 # the variables
set -eu
umask 077
[ -z "$learned" ] || trap 'rm -rf "$learned"' EXIT

say() { printf 'say %s\0' "$*"; }
fail() {
	[ -n "$learned" ] || say "$1" # printed before the program ran
	printf 'exit 125\0'
	exit
}
# run MESSAGE...: ends the script; sframe-run runs the program.
run() {
	[ -n "$quiet" ] || [ -z "$*" ] || say "$*"
	printf 'run\0'
	exit
}
newline='
'

# Start-up must be fast: a second run with the same files starts only three processes: cat once and stat twice.
# first FILE...: sets found to the first FILE that exists.
first() {
	for found; do
		[ ! -e "$found" ] || return 0
	done
	return 1
}
# find_program NAME: sets found to the path of the program NAME. command -v would prefer shell builtins.
find_program() {
	found=$1
	case $1 in
	*/*) return ;;
	'') return 1 ;;
	esac
	set -f
	IFS=:
	for dir in $search; do
		found=${dir:-.}/$1
		if [ -f "$found" ] && [ -x "$found" ]; then
			set +f
			unset IFS
			return
		fi
	done
	set +f
	unset IFS
	return 1
}
# The converter and the library are next to sframe-run, or installed.
cfi2sframe=${CFI2SFRAME-}
if [ -z "$cfi2sframe" ]; then
	first "$here/cfi2sframe" || find_program cfi2sframe ||
		fail "cfi2sframe is missing; install it next to sframe-run, or set CFI2SFRAME"
	cfi2sframe=$found
fi
find_program "$cfi2sframe" && [ -f "$found" ] && [ -x "$found" ] || fail "CFI2SFRAME=$cfi2sframe is not a program"
library=${SFRAME_BACKTRACE_LIBRARY-}
if [ -z "$library" ]; then
	first "$here"/../lib*/libsframe-backtrace.so "$here"/../lib/*/libsframe-backtrace.so \
		"$here/libsframe-backtrace.so" ||
		fail "libsframe-backtrace.so is missing; install it in $here/../lib, or set SFRAME_BACKTRACE_LIBRARY"
	library=$found
fi
case $library in /*) ;; *) library=${PWD-}/$library ;; esac
case $library in *[:\ ]*) fail "LD_PRELOAD cannot name $library, whose path has a space or a colon; move it" ;; esac
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:+$cache/cfi2sframe${infer:+-infer}} # with more rows, so stored separately
why="HOME and XDG_CACHE_HOME are unset"
case $cache in
/* | '') ;;
*) [ -n "${PWD-}" ] && cache=$PWD/$cache || why="the current directory is gone, and $cache is in it" cache='' ;;
esac

# The library accepts directories of up to 256 bytes, 1,023 bytes together.
fits() {
	rest=1023
	set -f
	IFS=:
	for dir in $1; do
		[ ${#dir} -le 256 ] || rest=0
		rest=$((rest - ${#dir} - 1))
	done
	set +f
	unset IFS
	[ $rest -ge 0 ]
}
if ! fits "$cache"; then
	why="$cache is longer than 256 bytes" cache=''
fi
case $cache in *:* | *"$newline"*) why="$cache contains a colon or a newline" cache='' ;; esac

# open_cache: creates the cache, and returns whether it can be used; if not, why says why.
open_cache() {
	[ -n "$cache" ] || return 1
	why="$cache cannot be created"
	mkdir -p "$cache/known" "$cache/.build-id" || return 1
	for dir in "$cache" "$cache/known" "$cache/.build-id"; do
		why="$dir is a link, or other users can change it; remove it"
		case $(stat -c '%F %A' "$dir") in directory\ ?????-??-?) ;; *) return 1 ;; esac
		[ -O "$dir" ] || return 1
	done
}

# detach: writes sections for the files listed on standard input, and prints a report on each, as a line of JSON,
# without totals. A failure only costs speed.
detach() {
	tr '\n' '\0' | xargs -0 "$cfi2sframe" detach --format 3 ${infer:+--infer} --skip-unsupported \
		--report json -o "$cache/" -- | sed '/"complete":true/d'
}

if [ -n "$learned" ]; then
	open_cache || run
	find "$learned" -type f -exec sed -n 's/^ *[0-9]*:\t\(calling init\|initialize program\): //p' {} + | sort -u |
		while IFS= read -r name; do
			find_program "$name" && [ -f "$found" ] && readlink -f "$found" || true
		done | detach >/dev/null
	run
fi

# sframe-run prints an error if it cannot execute the program.
find_program "$1" && [ -f "$found" ] && [ -x "$found" ] || run
program=$found
case $program in /*) ;; *) program=${PWD-}/$program ;; esac
case $program in
*/../*) program=$(readlink -f "$program") ;; # its stamp must be in the cache
esac

# others ARGUMENT...: sets others to the programs among the arguments: up to 16 paths, and the first of up to 16 names
# that is in PATH. There may be thousands of arguments.
others() {
	others='' paths=16 names=16
	for arg; do
		case $arg in
		*"$newline"* | -*) ;;
		*/*)
			[ $paths -gt 0 ] && [ -f "$arg" ] && [ -x "$arg" ] || continue
			paths=$((paths - 1))
			others=$others$arg$newline
			;;
		*=* | '') ;;
		*)
			[ $names -gt 0 ] || continue
			names=$((names - 1))
			find_program "$arg" || continue
			names=0
			others=$others$found$newline
			;;
		esac
	done
}
command=$1
shift
others "$@"

# A program's stamp records the request, the messages to print, and the state of files and sections at that time. If
# nothing has changed, the files are not examined again.
stamp=$cache/known$program/stamp
kernel=''
[ ! -r /proc/version ] || read -r kernel </proc/version || :
key="$kernel|$cfi2sframe|$library|$preload|$libraries|$search|${PWD-}|$others|$also"
# state FILE...: prints the state of files, following links. mine FILE...: prints the state of the cache, which other
# users must not change.
state() { stat -L -c '%n %d %i %s %y %z' -- "$@"; }
mine() {
	cd "$cache"
	for file; do
		[ -s "$file" ] || return 1
	done
	stat -c '%n %F %u %a %i' -- "$@"
}
current() {
	[ -z "$verbose" ] && [ -n "$cache" ] && [ -f "$stamp" ] || return 1
	set -f
	IFS=$separator
	# shellcheck disable=SC2046 # fields; removing prefixes and suffixes would take quadratic time
	set -- $(cat "$stamp")
	IFS=$newline
	# shellcheck disable=SC2086 # one file per line
	[ $# = 5 ] && [ "$1" = "$key" ] && now=$(state $3 && mine $4) || now=''
	set +f
	unset IFS
	summary=${2-}
	[ -n "$now" ] && [ "$now" = "$5" ]
}
ten=/../../../../../../../../../..
finish() {
	path=$cache${SFRAME_PATH:+${cache:+:}$SFRAME_PATH}
	if ! fits "$path"; then
		say "SFRAME_PATH is ignored: its directories may have 256 bytes, and 1,023 together with the cache"
		path=$cache
	fi
	[ "$path" = "${SFRAME_PATH-}" ] || printf 'set SFRAME_PATH=%s\0' "$path"
	# Children inherit LD_PRELOAD. musl's dynamic linker would fail to load a library that needs glibc, but does not
	# replace $ORIGIN, the directory of the program, and ignores libraries that it does not find.
	# shellcheck disable=SC2016 # $ORIGIN is for the dynamic linker, which needs /proc for it
	[ ! -e /proc/self/exe ] || library='$ORIGIN'$ten$ten$ten$ten$library
	printf 'set LD_PRELOAD=%s\0' "$library${preload:+:$preload}"
	# AddressSanitizer's library must otherwise be the first one, but if it is preloaded, children use it as well.
	printf 'set ASAN_OPTIONS=%s\0' "verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
	run "$summary"
}
! current || finish

first /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 /lib/ld64.so.1 ||
	fail "glibc's dynamic linker is missing; libsframe-backtrace.so needs glibc"
rtld=$found

is_elf() { [ "$(head -c 4 "$1" | od -An -c | tr -d ' ')" = '177ELF' ]; }

# Lists contain one file per line, and no files whose paths contain a newline.
# programs DIR: prints the programs and libraries below a directory.
programs() { find "$1" -type f ! -path "*$newline*" \( -name '*.so' -o -name '*.so.*' -o -perm -100 \); }

# private FILE: prints what a package installs for its program PREFIX/bin/NAME: plugins, modules, preloaded libraries.
private() {
	case $1 in */bin/*) ;; *) return 0 ;; esac
	for dir in "${1%/bin/*}/lib/${1##*/}" "${1%/bin/*}"/lib/*/"${1##*/}"; do
		[ ! -d "$dir" ] || programs "$dir"
	done
}

# dependencies PROGRAM PLUGINS: prints the libraries that they load, without running their code. Static programs are
# skipped: they would run, or crash the dynamic linker.
dependencies() {
	"$rtld" --verify "$1" || return 0
	plugins=$(printf '%s\n' "$2" | grep '\.so' | tr '\n' :)
	LD_LIBRARY_PATH=$libraries LD_PRELOAD=$plugins$preload "$rtld" --list "$1" |
		sed -n 's/^\t\(.* => \)\{0,1\}\(\/.*\) (0x[0-9a-f]*)$/\2/p'
}

# loads PROGRAM: prints the program's files; for a script, those of its interpreter. No code of the program runs.
loads() (
	file=$(readlink -f "$1") depth=0
	while ! is_elf "$file"; do
		plugins=$(private "$file")
		if [ -n "$plugins" ]; then
			printf '%s\n' "$plugins"
			dependencies "$(readlink -f /bin/sh)" "$plugins"
		fi
		words=$(head -c 256 "$file" | tr -d '\000' | sed -n '1s/^#! *//p')
		set -f
		# shellcheck disable=SC2086 # the kernel splits the line as well
		set -- $words
		set +f
		case ${1-} in
		*/env)
			shift
			while [ $# -gt 1 ]; do
				case $1 in -* | *=*) shift ;; *) break ;; esac
			done
			;;
		esac
		depth=$((depth + 1))
		# Shells run scripts without a #! line themselves.
		find_program "${1:-sh}" && file=$(readlink -f "$found") || return 0
		[ $depth -lt 5 ] || return 0
	done
	case $file in *"$newline"*) ;; *) printf '%s\n' "$file" ;; esac
	plugins=$(private "$file")
	[ -z "$plugins" ] || printf '%s\n' "$plugins"
	dependencies "$file" "$plugins"
)

# interpreter FILE: prints the dynamic linker of a 64-bit program of this machine.
interpreter() (
	at=$(od -A n -t u8 -j 32 -N 8 "$1") num=$(od -A n -t u2 -j 56 -N 2 "$1")
	# shellcheck disable=SC2046 # program headers: type and flags, offset, address, address, size, size, alignment
	set -- "$1" $(od -A n -v -t u8 -j $((at)) -N $((num * 56)) "$1")
	file=$1
	shift
	while [ $# -ge 7 ]; do
		[ $(($1 & 0xffffffff)) != 3 ] || tail -c +$(($2 + 1)) "$file" | head -c $(($5 - 1))
		shift 7
	done
)

# missing FILE: prints why the library is not loaded into a program, or why the program is not covered.
missing() {
	is_elf "$1" || return 0
	if { [ -u "$1" ] && [ ! -O "$1" ]; } || { [ -g "$1" ] && [ ! -G "$1" ]; }; then
		echo "is set-user-ID or set-group-ID; the dynamic linker does not preload the library"
	elif ! "$rtld" --verify "$1"; then
		echo "is static or for another machine; the library cannot be preloaded"
	else
		case $(interpreter "$1") in
		*/ld-musl-*) echo "uses musl, which does not load the library: it needs glibc" ;;
		esac
		case $1 in *"$newline"*) echo "has a newline in its path, and is not covered" ;; esac
	fi
}

# Clang links ThreadSanitizer's runtime into the program. Its dl_iterate_phdr crashes if a preloaded library calls it
# before the program starts.
printf '%s\n%s' "$program" "$others" | while IFS= read -r path; do
	if grep -q __interceptor_dl_iterate_phdr "$path" && grep -q __tsan_init "$path"; then
		echo "$path"
	fi
done | grep -q . && run "$command runs without the library, because of ThreadSanitizer's runtime"

# temporary FILE: sets new to the path of a file next to FILE. It is removed when this shell ends, also by a signal. A
# signal could end mktemp after it has created a file, and before its name is known.
temporary() {
	new=$1.$$
	trap 'rm -f "$new"' EXIT
	trap 'exit 1' HUP INT TERM
}

# vdso: prints the path of a copy of the vDSO, which the kernel maps into each process. Other programs' stamps contain
# the state of the copy, so it is replaced only if it differs.
vdso() (
	file=$cache/vdso.so
	temporary "$file"
	exec 9</proc/self/mem
	while read -r range _ _ _ _ name; do
		[ "$name" = '[vdso]' ] || continue
		begin=$((0x${range%-*} / 4096)) end=$((0x${range#*-} / 4096))
		dd bs=4096 skip=$begin count=$((end - begin)) <&9 >"$new" && ! cmp -s "$new" "$file" && mv "$new" "$file"
		echo "$file"
	done </proc/self/maps
)

list() {
	loads "$program"
	vdso
	printf %s "$others" | while IFS= read -r path; do
		loads "$path"
	done
	printf %s "$also" | while IFS= read -r path; do
		if [ -d "$path" ]; then
			programs "$path"
		else
			readlink -f "$path"
		fi
	done
	echo "$library"
}

# field NAME: prints a field of the reports.
field() { sed -n 's/.*[{,] *"'"$1"'": *"\(\([^"\\]\|\\.\)*\)".*/\1/p'; }

# prepare: writes sections and the stamp, and sets summary. No failure matters: set -e has no effect here.
prepare() {
	files=$(list | sort -u)
	reports=$(printf '%s\n' "$files" | if [ -n "$verbose" ]; then detach 2>&3; else detach; fi)
	sections=$(printf '%s\n' "$reports" | field output | sed -n 's/.*\/\(\.build-id\/[0-9a-f/]*\.sframe\)$/\1/p')
	without=$(printf '%s\n' "$reports" | grep -v '"output":' | grep -v '"kept": *"\(not-elf\|exists\)"' |
		field file)
	num=$(printf '%s\n' "$reports" | grep -c -e '"output":' -e '"kept": *"exists"')
	if [ -n "$verbose" ]; then
		printf '%s\n' "$reports" | sed 's/"output":/"why":"has a section",&/; s/"error":/"why":/
			/"kept": *"exists"/s/"why":.*/"why":"has a section"}/' |
			while IFS= read -r line; do
				say "$(printf '%s\n' "$line" | field file): $(printf '%s\n' "$line" | field why)"
			done
	fi
	summary="$num files of ${program##*/} have sections"
	if [ -n "$without" ]; then
		kept=$(printf '%s\n' "$reports" | grep -v '"output":' | sed 's/"error":/"kept":"failed",&/' | field kept |
			grep -v -e '^not-elf$' -e '^exists$' | sort -u | paste -s -d, -)
		one=${without%%"$newline"*}
		[ "${one##*/}" != "${program##*/}" ] || one=$command
		summary="$summary; $(printf '%s\n' "$without" | wc -l | tr -d ' ') without ($kept), such as $one"
	fi
	why=$(missing "$program")
	[ -z "$why" ] || summary="$command $why"
	# Without memory or space, the next run tries again.
	[ "$(printf '%s\n' "$reports" | wc -l)" -eq "$(printf '%s\n' "$files" | wc -l)" ] || return 1
	! printf '%s\n' "$reports" | grep -q '"error":.*/\.build-id' || return 1
	# Other processes may write the same stamp, or remove it.
	mkdir -p "${stamp%/*}" || return 1
	sections=$(printf '%s\n' . known .build-id "$sections")
	(
		temporary "$stamp"
		exec >"$new"
		printf "%s$separator" "$key" "$summary" "$files" "$sections"
		set -f
		IFS=$newline
		# shellcheck disable=SC2086 # one file per line
		state $files
		# shellcheck disable=SC2086
		mine $sections && mv "$new" "$stamp"
	)
}

summary=''
if open_cache; then
	prepare || true
else
	say "$why; $command runs without sections"
	cache=''
fi
finish
