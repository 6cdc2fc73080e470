package testenv

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// DocumentedColumns returns, sorted, the names in the first cells of the first table of a document in docs/ whose
// head is "column".
func DocumentedColumns(t testing.TB, name string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n| column |")
	for _, line := range strings.Split(rest, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		for _, match := range quoted.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			names = append(names, match[1])
		}
	}
	if !found || len(names) == 0 {
		t.Fatalf("docs/%s has no table of columns", name)
	}
	slices.Sort(names)
	return names
}
