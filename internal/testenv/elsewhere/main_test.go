package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestCheck finds what is wrong on one system only, in a package, in its test and in a test from outside, and
// nothing where all is well.
func TestCheck(t *testing.T) {
	testenv.Slow(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.org/m\n\ngo 1.24\n",
		"m.go":              "package m\n\nimport \"example.org/m/sub\"\n\nvar M = sub.Sub\n",
		"m_test.go":         "package m\n\nimport \"example.org/m/sub\"\n\nvar inside int = helper + sub.Sub\n",
		"helper_test.go":    "//go:build !windows\n\npackage m\n\nconst helper = 1\n",
		"outer_test.go":     "package m_test\n\nimport \"example.org/m\"\n\nvar outside string = m.Inside()\n",
		"export_test.go":    "package m\n\nfunc Inside() string { return \"\" }\n",
		"sub/sub.go":        "package sub\n\nvar Sub = of()\n",
		"sub/of_unix.go":    "//go:build unix\n\npackage sub\n\nfunc of() int { return 1 }\n",
		"sub/of_windows.go": "package sub\n\nfunc of() int { x := 1; return \"\" }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "")
	for _, system := range []string{"linux", "darwin"} {
		if err := check(dir, system, "./..."); err != nil {
			t.Errorf("%s: %v", system, err)
		}
	}
	err := check(dir, "windows", "./...")
	if err == nil {
		t.Fatal("nothing is wrong on windows")
	}
	for _, want := range []string{"m_test.go:5:18: undefined: helper", "of_windows.go:3:17: declared and not used: x",
		"of_windows.go:3:32: cannot use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 3 {
		t.Errorf("%d lines:\n%v", n, err)
	}
	if err := check(dir, "linux", "./nowhere"); err == nil {
		t.Error("no package is no error")
	}
}
