package llamatap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoCTypesExported checks that no exported declaration of a package under cgo/ names a type of C: another
// package cannot use it.
func TestNoCTypesExported(t *testing.T) {
	paths, err := filepath.Glob("cgo/*/*.go")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d files: %v", len(paths), err)
	}
	files := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range exportedC(file) {
			t.Errorf("%s: exported %s has a type of C", path, name)
		}
	}
}

// TestExportedCFindsThem plants such declarations.
func TestExportedCFindsThem(t *testing.T) {
	const source = `package p
func Bad(C.int) {}
func (T) Method() *C.char { return nil }
func good(C.int) { var x C.int; _ = x }
func Good() { var x C.int; _ = x }
type Struct struct { Field []C.int; hidden C.int }
type Alias = C.int
type Fine struct { hidden C.int }
type lower struct { Field C.int }
func (lower) Method(C.int) {}
var Value C.int
var value C.int`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(exportedC(file), " "), "Bad Method Struct Alias Value"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

// exportedC are the names of a file's exported declarations that others see a type of C in.
func exportedC(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) && namesC(d.Type) {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && namesC(s.Type) {
						names = append(names, s.Name.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && s.Type != nil && namesC(s.Type) {
						names = append(names, s.Names[0].Name)
					}
				}
			}
		}
	}
	return names
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	name, ok := kind.(*ast.Ident)
	return !ok || name.IsExported()
}

// namesC reports whether a type names one of C, fields of structs that others do not see left aside.
func namesC(kind ast.Node) (found bool) {
	ast.Inspect(kind, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if len(n.Names) > 0 && !n.Names[0].IsExported() {
				if _, parameter := kind.(*ast.FuncType); !parameter {
					return false
				}
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "C" {
				found = true
			}
		}
		return true
	})
	return found
}
