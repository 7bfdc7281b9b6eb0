# Uses features of bash, $1 times.
set -o pipefail
declare -A words
f() { local n=$1; [ "$n" -le 1 ] && { echo 1; return; }; printf '%d' $((n * 2)); }
trap ': $((++signals))' USR1
for ((i = 0; i < $1; i++)); do
	for w in one two three two one; do words[$w]=$((${words[$w]-0} + i)); done
	[[ "a$i-b" =~ ^a([0-9]+)-b$ ]] && m=${BASH_REMATCH[1]}
	v=$(f "$i")
	case $v in *5) x=five ;; [0-4]*) x=low ;; *) x=${v//2/two} ;; esac
	a=({1..20} "${!words[@]}")
	printf -v text '%s,' "${a[@]/1/z}"
	kill -USR1 $$
	read -r first rest <<<"$text $x $m"
done
echo "${#text} ${words[two]} ${first:0:5} $signals"
