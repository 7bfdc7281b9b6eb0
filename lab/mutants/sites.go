package mutants

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
)

// A mutant is a change to a file.
type mutant struct {
	file, fn string // fn is the function or variable declaration to change
	line     int
	changed  string // the source line after the change
	text     []byte // of the original file
	from, to int    // the range to replace
	with     string
	outcome  outcome
}

// source returns the text of the changed file.
func (m *mutant) source() []byte {
	return slices.Concat(m.text[:m.from], []byte(m.with), m.text[m.to:])
}

func (m *mutant) String() string { return fmt.Sprintf("%s:%d %s: %s", m.file, m.line, m.fn, m.changed) }

// shuffle sorts mutants by a hash, so that a seed always gives the same order.
func shuffle(all []*mutant, seed int) {
	rank := func(m *mutant) uint64 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %s", seed, m.file, m.from, m.with))
		return binary.BigEndian.Uint64(sum[:])
	}
	slices.SortFunc(all, func(a, b *mutant) int { return cmp.Compare(rank(a), rank(b)) })
}

// A finder collects the mutants of a file.
type finder struct {
	name  string
	text  []byte
	fset  *token.FileSet
	fn    string
	fails bool // fn's last result is an error
	found []*mutant
}

// find returns the mutants of a file. Some may not compile.
func find(name string) ([]*mutant, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	g := &finder{name: name, text: text, fset: token.NewFileSet()}
	tree, err := parser.ParseFile(g.fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				g.function(d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					g.fn = d.Tok.String() + " " + v.Names[0].Name
					ast.Inspect(v, g.node)
				}
			}
		}
	}
	return g.found, nil
}

func (g *finder) function(d *ast.FuncDecl) {
	g.fn, g.fails = d.Name.Name, false
	if d.Recv != nil {
		g.fn = "(" + g.textOf(d.Recv.List[0].Type) + ")." + g.fn
	}
	named := true
	if r := d.Type.Results; r != nil && len(r.List) > 0 {
		last := r.List[len(r.List)-1]
		g.fails = g.textOf(last.Type) == "error"
		named = len(last.Names) > 0
	}
	if named {
		g.add(d.Body.Lbrace+1, d.Body.Lbrace+1, " return;")
	}
	ast.Inspect(d.Body, g.node)
}

func (g *finder) at(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *finder) textOf(n ast.Node) string { return string(g.text[g.at(n.Pos()):g.at(n.End())]) }

// add adds a mutant that replaces the text between two positions.
func (g *finder) add(from, to token.Pos, with string) {
	m := &mutant{
		file: g.name, fn: g.fn, line: g.fset.Position(from).Line, text: g.text,
		from: g.at(from), to: g.at(to), with: with,
	}
	line := m.source()[bytes.LastIndexByte(g.text[:m.from], '\n')+1:]
	line, _, _ = bytes.Cut(line, []byte("\n"))
	m.changed = strings.Join(strings.Fields(string(line)), " ")
	g.found = append(g.found, m)
}

func (g *finder) replace(n ast.Node, with string) { g.add(n.Pos(), n.End(), with) }

// drop disables a statement, but keeps using its variables, so that the mutant compiles.
func (g *finder) drop(n ast.Node) { g.replace(n, "if false { "+g.textOf(n)+" }") }

// operators maps each operator to its replacement.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND,
	token.AND_NOT: token.AND, token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.XOR_ASSIGN: token.AND_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
}

func (g *finder) swap(at token.Pos, op token.Token) {
	if with, ok := operators[op]; ok {
		g.add(at, at+token.Pos(len(op.String())), with.String())
	}
}

// node adds the mutants of a syntax node, and reports whether to visit the node's children: messages are not changed.
func (g *finder) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := g.textOf(n.Fun)
		if name == "slices.Grow" || name == "make" && len(n.Args) == 3 { // the last argument affects only memory
			for _, arg := range n.Args[:len(n.Args)-1] {
				ast.Inspect(arg, g.node)
			}
			return false
		}
		return name != "panic" && name != "errors.New" && !strings.HasPrefix(name, "fmt.")
	case *ast.IfStmt:
		cond := g.textOf(n.Cond)
		g.replace(n.Cond, "false && ("+cond+")")
		g.replace(n.Cond, "true || ("+cond+")")
	case *ast.ForStmt:
		g.add(n.Body.Lbrace+1, n.Body.Lbrace+1, " break;")
	case *ast.RangeStmt:
		g.add(n.Body.Lbrace+1, n.Body.Lbrace+1, " break;")
	case *ast.CaseClause:
		if len(n.Body) > 0 {
			first, last := n.Body[0].Pos(), n.Body[len(n.Body)-1].End()
			g.add(first, last, "if false { "+string(g.text[g.at(first):g.at(last)])+" }")
		}
	case *ast.BinaryExpr:
		g.swap(n.OpPos, n.Op)
	case *ast.AssignStmt:
		g.swap(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			g.drop(n)
		}
	case *ast.IncDecStmt:
		g.swap(n.TokPos, n.Tok)
		g.drop(n)
	case *ast.ExprStmt, *ast.DeferStmt:
		g.drop(n)
	case *ast.BranchStmt:
		if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
			g.drop(n)
		}
	case *ast.ReturnStmt:
		if k := len(n.Results); k > 0 && g.fails && g.textOf(n.Results[k-1]) != "nil" {
			g.replace(n.Results[k-1], "nil")
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB || n.Op == token.XOR {
			g.replace(n, g.textOf(n.X))
		}
	case *ast.BasicLit:
		if n.Kind == token.INT {
			g.replace(n, "("+n.Value+" - 1)")
			g.replace(n, "("+n.Value+" + 1)")
		}
	case *ast.Ident:
		if with := map[string]string{"true": "false", "false": "true"}[n.Name]; with != "" {
			g.replace(n, with)
		}
	case *ast.KeyValueExpr: // table entry or field
		g.replace(n, "/* "+strings.ReplaceAll(g.textOf(n), "*/", "")+" */")
	}
	return true
}
