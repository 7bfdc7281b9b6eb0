package mutants

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one change of one file.
type mutant struct {
	Package string // its folder
	File    string // with the folder
	Func    string // the function or declaration that is changed
	Kind    string // what sort of change
	Text    string // the source line, as it is after the change
	Nth     int    // which of those in the function that have the same text
	Line    int

	from, to int // what is replaced in the file
	with     string
}

// key names the mutant in a way that changes of other lines leave alone.
func (m *mutant) key() string {
	key := m.File + " " + m.Func + "\n" + m.Text
	if m.Nth > 1 {
		key += fmt.Sprintf(" // %d.", m.Nth)
	}
	return key
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d %s (%s): %s", m.File, m.Line, m.Func, m.Kind, m.Text)
}

// rank is the mutant's place in an order that looks random, and is the same each time.
func (m *mutant) rank(seed int64) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", seed, m.Kind, m.key()))
	return binary.BigEndian.Uint64(sum[:])
}

// A source is a package whose files are to be mutated.
type source struct {
	folder  string
	path    string // of imports
	fset    *token.FileSet
	files   map[string]*file
	imports types.Importer
}

type file struct {
	tree *ast.File
	text []byte
}

// load reads and checks the package with the given Go files.
func load(folder, path string, names []string, imports types.Importer) (*source, *types.Info, error) {
	s := &source{folder: folder, path: path, fset: token.NewFileSet(), files: make(map[string]*file), imports: imports}
	var trees []*ast.File
	for _, name := range names {
		name = filepath.Join(folder, name)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		tree, err := parser.ParseFile(s.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		s.files[name] = &file{tree: tree, text: text}
		trees = append(trees, tree)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	config := types.Config{Importer: imports}
	_, err := config.Check(path, s.fset, trees, info)
	return s, info, err
}

// mutated returns the file as the mutant has it.
func (s *source) mutated(m *mutant) []byte {
	text := s.files[m.File].text
	return slices.Concat(text[:m.from], []byte(m.with), text[m.to:])
}

// compiles reports whether the package is still one for the compiler.
func (s *source) compiles(m *mutant) bool {
	tree, err := parser.ParseFile(s.fset, m.File, s.mutated(m), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	trees := []*ast.File{tree}
	for name, f := range s.files {
		if name != m.File {
			trees = append(trees, f.tree)
		}
	}
	config := types.Config{Importer: s.imports}
	_, err = config.Check(s.path, s.fset, trees, nil)
	return err == nil
}

// mutants returns all changes that could be made, the same each time, whether they compile or not.
func (s *source) mutants(info *types.Info) []*mutant {
	var all []*mutant
	for name, f := range s.files {
		g := &finder{source: s, info: info, file: f, name: name, count: make(map[string]int)}
		for _, d := range f.tree.Decls {
			g.declaration(d)
		}
		all = append(all, g.found...)
	}
	slices.SortStableFunc(all, func(x, y *mutant) int { return cmp.Compare(x.File, y.File) })
	return all
}

// A finder goes through a file.
type finder struct {
	source *source
	info   *types.Info
	file   *file
	name   string
	fn     string
	found  []*mutant
	count  map[string]int
	table  bool // in a declaration outside of functions
}

func (g *finder) at(p token.Pos) int { return g.source.fset.Position(p).Offset }

func (g *finder) textOf(n ast.Node) string { return string(g.file.text[g.at(n.Pos()):g.at(n.End())]) }

// add notes a change of the text between two places.
func (g *finder) add(kind string, from, to token.Pos, with string) {
	m := &mutant{
		Package: g.source.folder, File: g.name, Func: g.fn, Kind: kind,
		Line: g.source.fset.Position(from).Line, from: g.at(from), to: g.at(to), with: with,
	}
	text := g.source.mutated(m)
	begin := bytes.LastIndexByte(text[:m.from], '\n') + 1
	end := len(text)
	if n := bytes.IndexByte(text[m.from:], '\n'); n >= 0 {
		end = m.from + n
	}
	m.Text = strings.Join(strings.Fields(string(text[begin:end])), " ")
	g.count[m.Func+"\n"+m.Text]++
	m.Nth = g.count[m.Func+"\n"+m.Text]
	g.found = append(g.found, m)
}

func (g *finder) replace(kind string, n ast.Node, with string) { g.add(kind, n.Pos(), n.End(), with) }

func (g *finder) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Body == nil {
			return
		}
		g.fn, g.table = d.Name.Name, false
		if d.Recv != nil {
			g.fn = "(" + g.textOf(d.Recv.List[0].Type) + ")." + g.fn
		}
		g.early(d)
		ast.Inspect(d.Body, g.node)
	case *ast.GenDecl:
		g.table = true
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				g.fn = d.Tok.String() + " " + v.Names[0].Name
				for _, value := range v.Values {
					ast.Inspect(value, g.node)
				}
			}
		}
	}
}

// early has a function return at once what is nothing of each type.
func (g *finder) early(d *ast.FuncDecl) {
	if len(d.Body.List) == 0 {
		return
	}
	var values []string
	if results := d.Type.Results; results != nil && (len(results.List) == 0 || len(results.List[0].Names) == 0) {
		for _, r := range results.List {
			values = append(values, g.zero(r.Type))
		}
	}
	at := d.Body.Lbrace + 1
	g.add("early return", at, at, strings.TrimRight(" return "+strings.Join(values, ", "), " ")+";")
}

func (g *finder) zero(t ast.Expr) string {
	switch u := g.info.Types[t].Type.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsNumeric != 0:
			return "0"
		case u.Info()&types.IsString != 0:
			return `""`
		case u.Info()&types.IsBoolean != 0:
			return "false"
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Chan, *types.Signature:
		return "nil"
	case *types.Interface:
		if _, ok := g.info.Types[t].Type.(*types.TypeParam); !ok {
			return "nil"
		}
	}
	return "*new(" + g.textOf(t) + ")"
}

// operators are the ones that another one takes the place of.
var operators = map[token.Token]struct {
	kind string
	with token.Token
}{
	token.LSS: {"border", token.LEQ}, token.LEQ: {"border", token.LSS},
	token.GTR: {"border", token.GEQ}, token.GEQ: {"border", token.GTR},
	token.EQL: {"operator", token.NEQ}, token.NEQ: {"operator", token.EQL},
	token.LAND: {"operator", token.LOR}, token.LOR: {"operator", token.LAND},
	token.ADD: {"operator", token.SUB}, token.SUB: {"operator", token.ADD},
	token.MUL: {"operator", token.QUO}, token.QUO: {"operator", token.MUL}, token.REM: {"operator", token.MUL},
	token.SHL: {"operator", token.SHR}, token.SHR: {"operator", token.SHL},
	token.AND: {"operator", token.OR}, token.OR: {"operator", token.AND},
	token.XOR: {"operator", token.AND}, token.AND_NOT: {"operator", token.AND},
	token.ADD_ASSIGN: {"operator", token.SUB_ASSIGN}, token.SUB_ASSIGN: {"operator", token.ADD_ASSIGN},
	token.MUL_ASSIGN: {"operator", token.QUO_ASSIGN}, token.QUO_ASSIGN: {"operator", token.MUL_ASSIGN},
	token.SHL_ASSIGN: {"operator", token.SHR_ASSIGN}, token.SHR_ASSIGN: {"operator", token.SHL_ASSIGN},
	token.AND_ASSIGN: {"operator", token.OR_ASSIGN}, token.OR_ASSIGN: {"operator", token.AND_ASSIGN},
	token.XOR_ASSIGN: {"operator", token.AND_ASSIGN}, token.AND_NOT_ASSIGN: {"operator", token.AND_ASSIGN},
	token.INC: {"operator", token.DEC}, token.DEC: {"operator", token.INC},
}

func (g *finder) swap(at token.Pos, op token.Token) {
	if o, ok := operators[op]; ok {
		g.add(o.kind, at, at+token.Pos(len(op.String())), o.with.String())
	}
}

// node is called for each node; what it refuses is not gone into.
func (g *finder) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		return !g.message(n)
	case *ast.IfStmt:
		g.condition(n.Cond)
		cond := g.textOf(n.Cond)
		g.replace("branch", n.Cond, "false && ("+cond+")")
		g.replace("branch", n.Cond, "true || ("+cond+")")
	case *ast.ForStmt:
		if n.Cond != nil {
			g.condition(n.Cond)
		}
		g.body("branch", n.Body)
	case *ast.RangeStmt:
		g.body("branch", n.Body)
	case *ast.CaseClause:
		g.clause(n)
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
	case *ast.ExprStmt, *ast.BranchStmt, *ast.DeferStmt:
		if s, ok := n.(*ast.BranchStmt); !ok || s.Tok == token.BREAK || s.Tok == token.CONTINUE {
			g.drop(n)
		}
	case *ast.ReturnStmt:
		g.result(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.replace("negation", n, g.textOf(n.X))
		}
		if n.Op == token.SUB || n.Op == token.XOR {
			g.replace("operator", n, g.textOf(n.X))
		}
	case *ast.BasicLit:
		g.literal(n)
	case *ast.Ident:
		if v := g.info.Types[n]; (n.Name == "true" || n.Name == "false") && v.Value != nil && v.Value.Kind() == constant.Bool {
			g.replace("constant", n, map[string]string{"true": "false", "false": "true"}[n.Name])
		}
	case *ast.CompositeLit:
		g.entries(n)
	}
	return true
}

// message reports whether a call only makes words for people, which no rule is in.
func (g *finder) message(n *ast.CallExpr) bool {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		return f.Name == "panic"
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && (x.Name == "fmt" || x.Name == "errors" && f.Sel.Name == "New")
	}
	return false
}

// condition turns a condition round, where the change of its operator does not.
func (g *finder) condition(n ast.Expr) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			return
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			return
		}
	}
	g.replace("negation", n, "!("+g.textOf(n)+")")
}

// drop takes a statement away, in a way that leaves its names used.
func (g *finder) drop(n ast.Node) { g.replace("dropped", n, "if false { "+g.textOf(n)+" }") }

func (g *finder) body(kind string, b *ast.BlockStmt) {
	if len(b.List) > 0 {
		g.add(kind, b.Lbrace+1, b.Lbrace+1, " break;")
	}
}

// clause takes what a case does away.
func (g *finder) clause(n *ast.CaseClause) {
	if len(n.Body) > 0 {
		first, last := n.Body[0].Pos(), n.Body[len(n.Body)-1].End()
		g.add("branch", first, last, "if false { "+string(g.file.text[g.at(first):g.at(last)])+" }")
	}
}

// result has an error forgotten where it is returned.
func (g *finder) result(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	t := g.info.Types[last]
	if t.Type != nil && !t.IsNil() && types.AssignableTo(t.Type, types.Universe.Lookup("error").Type()) {
		g.replace("lost error", last, "nil")
	}
}

func (g *finder) literal(n *ast.BasicLit) {
	switch {
	case n.Kind == token.INT:
		if v := n.Value; len(v) > 1 || v != "0" {
			g.replace("constant", n, "("+v+" - 1)")
		}
		g.replace("constant", n, "("+n.Value+" + 1)")
	case n.Kind == token.STRING && g.table:
		g.replace("table", n, n.Value[:len(n.Value)-1]+"~"+n.Value[len(n.Value)-1:])
	}
}

// entries takes the entries of a composite literal away, one at a time.
func (g *finder) entries(n *ast.CompositeLit) {
	if _, ok := g.info.Types[n].Type.Underlying().(*types.Struct); !ok && !g.table {
		return // the words of a text, the parts of a message: what is in there is changed by other means
	}
	for _, e := range n.Elts {
		end := e.End()
		for i := g.at(end); i < len(g.file.text) && (g.file.text[i] == ' ' || g.file.text[i] == '\t'); i++ {
			end++
		}
		if i := g.at(end); i < len(g.file.text) && g.file.text[i] == ',' {
			end++
		} else {
			end = e.End()
		}
		g.add("table", e.Pos(), end, "/* "+strings.ReplaceAll(g.textOf(e), "*/", "* /")+" */")
	}
}

// choose returns number of the mutants, in proportion to what each file has, and of every kind in turn; 0 is for all.
// Those that do not compile do not count.
func choose(all []*mutant, number int, seed int64, compiles func(*mutant) bool) []*mutant {
	byFile := make(map[string][]*mutant)
	var names []string
	for _, m := range all {
		if byFile[m.File] == nil {
			names = append(names, m.File)
		}
		byFile[m.File] = append(byFile[m.File], m)
	}
	var chosen []*mutant
	for _, name := range names {
		from := turns(byFile[name], seed)
		n := len(from)
		if number > 0 {
			n = max(2, (number*len(from)+len(all)/2)/len(all))
		}
		for _, m := range from {
			if n > 0 && compiles(m) {
				chosen = append(chosen, m)
				n--
			}
		}
	}
	slices.SortStableFunc(chosen, func(x, y *mutant) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.from, y.from))
	})
	return chosen
}

// turns puts mutants in the order in which they are chosen: one of each kind, then the next of each.
func turns(all []*mutant, seed int64) []*mutant {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(x, y *mutant) int { return cmp.Compare(x.rank(seed), y.rank(seed)) })
	turn := make(map[*mutant]int)
	seen := make(map[string]int)
	for _, m := range all {
		turn[m] = seen[m.Kind]
		seen[m.Kind]++
	}
	slices.SortStableFunc(all, func(x, y *mutant) int { return cmp.Compare(turn[x], turn[y]) })
	return all
}
