// Command elsewhere checks that packages, with their tests, compile on another system, without a compiler for it:
//
//	elsewhere GOOS PATTERN...
//
// It checks types as the compiler does, from source: of the packages of this module everything, of what they import
// what they can use of it. That takes seconds where a build for another system, standard library and all, takes
// minutes. It does not link.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "elsewhere: say for which system and what: elsewhere windows ./cmd/...")
		os.Exit(2)
	}
	if err := check(".", os.Args[1], os.Args[2:]...); err != nil {
		fmt.Fprintf(os.Stderr, "elsewhere: %v\n", err)
		os.Exit(1)
	}
}

// listed is what go list prints of a package.
type listed struct {
	ImportPath string
	Dir        string
	Name       string
	ForTest    string
	Standard   bool
	GoFiles    []string
	ImportMap  map[string]string
	Module     *struct {
		Main      bool
		GoVersion string
	}
}

// inMainModule says that the package is of the main module.
func (p *listed) inMainModule() bool { return p.Module != nil && p.Module.Main }

// check checks the packages that match patterns in dir's module, and their tests, as they are on a system. All
// errors in the module's own files are returned, each with its place.
func check(dir, system string, patterns ...string) error {
	packages, err := list(dir, system, patterns)
	if err != nil {
		return err
	}
	c := &checker{files: token.NewFileSet(), parsed: map[string]*ast.File{},
		types: map[string]*types.Package{"unsafe": types.Unsafe}}
	var wrong []error
	for _, p := range packages {
		if p.Name == "main" && p.ForTest == "" && strings.HasSuffix(p.ImportPath, ".test") || p.ImportPath == "unsafe" {
			continue // the main function that go test writes
		}
		wrong = append(wrong, c.check(p)...)
	}
	return errors.Join(wrong...)
}

// list is the packages, their tests and all that these import, each behind what it imports.
func list(dir, system string, patterns []string) (packages []*listed, err error) {
	args := []string{"list", "-deps", "-test", "-json=ImportPath,Dir,Name,ForTest,Standard,GoFiles,ImportMap,Module",
		"--"}
	cmd := exec.Command("go", append(args, patterns...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	for decoder := json.NewDecoder(out); ; {
		p := new(listed)
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.Join(fmt.Errorf("list packages: %w", err), cmd.Wait())
		}
		packages = append(packages, p)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("list packages for %s: %w", system, err)
	}
	return packages, nil
}

// checker knows what was checked before.
type checker struct {
	files  *token.FileSet
	parsed map[string]*ast.File // by path: a package and that package with its tests share files
	types  map[string]*types.Package
}

// check checks a package and returns what is wrong with it.
func (c *checker) check(p *listed) (wrong []error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := c.parse(filepath.Join(p.Dir, name))
		if err != nil {
			return []error{err}
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer:         imports{c, p},
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		IgnoreFuncBodies: !p.inMainModule(),
		Error:            func(err error) { wrong = append(wrong, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // of a test: PACKAGE [TEST]
	c.types[p.ImportPath], _ = config.Check(path, c.files, files, nil)
	return wrong
}

func (c *checker) parse(path string) (*ast.File, error) {
	if file := c.parsed[path]; file != nil {
		return file, nil
	}
	file, err := parser.ParseFile(c.files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %w", err)
	}
	c.parsed[path] = file
	return file, nil
}

// imports gives a package what it imports.
type imports struct {
	*checker
	of *listed
}

func (i imports) Import(path string) (*types.Package, error) {
	if other := i.of.ImportMap[path]; other != "" {
		path = other
	}
	if p := i.types[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not listed before what imports it", path)
}
