package manual

import (
	"fmt"
	"strings"
)

// bash returns the completion for bash. It needs nothing of bash-completion.
func (p *page) bash() string {
	var all, values strings.Builder
	for i := range p.Flags {
		f := &p.Flags[i]
		names := "--" + f.Name
		fmt.Fprintf(&all, " --%s", f.Name)
		if f.Short != "" {
			names += " | -" + f.Short
			fmt.Fprintf(&all, " -%s", f.Short)
		}
		if f.Value != "" {
			files := ""
			if f.files() {
				files = " files=1"
			}
			fmt.Fprintf(&values, "\t%s) words='%s'%s ;;\n", names, strings.Join(words[f.Name], " "), files)
		}
	}
	return `# bash completion for cfi2sframe. Made by lab/manual from the program's flags.
_cfi2sframe() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words='' files='' i
	COMPREPLY=()
	# --flag=value is one word, or three if COMP_WORDBREAKS has the =.
	case $cur in
	=) cur='' ;;
	--*=*) prev=${cur%%=*} cur=${cur#*=} ;;
	*) [ "$prev" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]} ;;
	esac
	for ((i = 1; i < COMP_CWORD; i++)); do
		[ "${COMP_WORDS[i]}" != -- ] || prev=--
	done
	case $prev in
	--) files=1 ;;
` + values.String() + `	*)
		case $cur in
		-*) words='` + strings.TrimSpace(all.String()) + `' ;;
		*)
			files=1
			[ "$COMP_CWORD" != 1 ] || words='ld pkg'
			;;
		esac
		;;
	esac
	while IFS= read -r i; do
		COMPREPLY+=("$i")
	done < <(
		compgen -W "$words" -- "$cur"
		[ -z "$files" ] || compgen -f -- "$cur"
	)
	# What are files is shown and quoted as such.
	[ -z "$files" ] || compopt -o filenames 2>/dev/null || :
}
complete -F _cfi2sframe cfi2sframe
`
}

// zsh returns the completion for zsh.
func (p *page) zsh() string {
	var b strings.Builder
	b.WriteString("#compdef cfi2sframe\n# Made by lab/manual from the program's flags.\n_arguments -s -S \\\n")
	for i := range p.Flags {
		f := &p.Flags[i]
		text := "[" + strings.NewReplacer(`'`, `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(f.brief()) + "]"
		long, short := "--"+f.Name, "-"+f.Short
		if f.Value != "" {
			long, short = long+"=", short+"+"
			action := " "
			switch w := strings.Join(words[f.Name], " "); {
			case w != "" && f.files():
				action = fmt.Sprintf(`_alternative "words\:word\:(%s)" "files\:file\:_files"`, w)
			case w != "":
				action = "(" + w + ")"
			case f.files():
				action = "_files"
			}
			text += ":" + strings.ToLower(f.Value) + ":" + action
		}
		if f.Short == "" {
			fmt.Fprintf(&b, "\t'%s%s' \\\n", long, text)
		} else {
			fmt.Fprintf(&b, "\t'(-%s --%s)'{%s,%s}'%s' \\\n", f.Short, f.Name, short, long, text)
		}
	}
	b.WriteString("\t'1:file:{ _files; (( CURRENT > 2 )) || compadd ld pkg }' \\\n")
	b.WriteString("\t'*:file:_files'\n")
	return b.String()
}

// fish returns the completion for fish.
func (p *page) fish() string {
	var b strings.Builder
	b.WriteString("# Made by lab/manual from the program's flags.\n")
	b.WriteString("complete -c cfi2sframe -n 'test (count (commandline -opc)) = 1' -a ld -d 'run a linker, and convert what it makes'\n")
	b.WriteString("complete -c cfi2sframe -n 'test (count (commandline -opc)) = 1' -a pkg -d 'convert the files in packages'\n")
	for i := range p.Flags {
		f := &p.Flags[i]
		fmt.Fprintf(&b, "complete -c cfi2sframe -l %s", f.Name)
		if f.Short != "" {
			fmt.Fprintf(&b, " -s %s", f.Short)
		}
		switch {
		case f.Value == "":
		case f.files():
			b.WriteString(" -r -F")
		default:
			b.WriteString(" -x")
		}
		if w := words[f.Name]; w != nil {
			fmt.Fprintf(&b, " -a '%s'", strings.Join(w, " "))
		}
		fmt.Fprintf(&b, " -d '%s'\n", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(f.brief()))
	}
	return b.String()
}
