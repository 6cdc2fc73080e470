package llamatap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rawOutput are the files that use standard output or error themselves, and what for. Everything else prints by
// internal/present, which escapes what controls a terminal; a child process, whose output is its own, may inherit
// them everywhere.
var rawOutput = map[string]string{
	"internal/present/terminal.go": "escapes",
	"cmd/llamatap/form.go":         "npy, which is binary",
	"cmd/llamatap/run.go":          "generated text into a pipe, bars on a terminal",
	"cmd/llamatap/doctor.go":       "colours; facts are escaped before",
	"cmd/llamatap/mrm_run.go":      "bars",
	"cmd/llamatap/top.go":          "moves the cursor; text is escaped before",
}

// TestOutputIsEscaped holds that no package prints past internal/present.
func TestOutputIsEscaped(t *testing.T) {
	used := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"third_party", "build", "oracle", "internal/testenv", "models",
			"examples"}, path),
			entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".":
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, at := range rawUses(file) {
			if used[filepath.ToSlash(path)] = true; rawOutput[filepath.ToSlash(path)] == "" {
				t.Errorf("%v: prints past internal/present: use present.Out, Err, Print or Printf",
					files.Position(at))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range rawOutput {
		if !used[path] {
			t.Errorf("%s has no raw output: take it out of the list", path)
		}
	}
}

// rawUses are the places where a file uses os.Stdout, os.Stderr or what prints to them, other than to give them to
// a command or to ask for their descriptor.
func rawUses(file *ast.File) (found []token.Pos) {
	allowed := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt: // cmd.Stdout = os.Stdout
			for i, left := range n.Lhs {
				if field, ok := left.(*ast.SelectorExpr); ok && i < len(n.Rhs) &&
					(field.Sel.Name == "Stdout" || field.Sel.Name == "Stderr") {
					allowed[n.Rhs[i]] = true
				}
			}
		case *ast.SelectorExpr:
			if n.Sel.Name == "Fd" {
				allowed[n.X] = true
				return true
			}
			from, ok := n.X.(*ast.Ident)
			if !ok || allowed[n] {
				return true
			}
			whole := from.Name + "." + n.Sel.Name
			if slices.Contains([]string{"os.Stdout", "os.Stderr", "fmt.Print", "fmt.Printf", "fmt.Println"}, whole) {
				found = append(found, n.Pos())
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && (name.Name == "print" || name.Name == "println") {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}
