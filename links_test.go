package llamatap_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link   = regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"\s]+)[)"]`)
	fence  = regexp.MustCompile("(?s)```.*?```")
	noSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// documents are the Markdown files of the repository.
func documents(t *testing.T) []string {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Skipf("no git checkout here: %v", err)
	}
	return strings.Fields(string(out))
}

// anchors are the headings of a document, as GitHub makes links of them.
func anchors(text []byte) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(string(fence.ReplaceAll(text, nil))) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = strings.ToLower(strings.TrimSpace(title))
			all[strings.ReplaceAll(noSlug.ReplaceAllString(title, ""), " ", "-")] = true
		}
	}
	return all
}

// TestLinks: each relative link and picture of a document exists, and so does the heading that it names.
func TestLinks(t *testing.T) {
	links := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
			target := string(found[1])
			if strings.Contains(target, "://") {
				continue
			}
			links++
			name, heading, _ := strings.Cut(target, "#")
			to := text
			if name != "" {
				if to, err = os.ReadFile(filepath.Join(filepath.Dir(path), name)); err != nil {
					t.Errorf("%s: broken link %s: %v", path, target, err)
					continue
				}
			}
			if heading != "" && !anchors(to)[heading] {
				t.Errorf("%s: link %s: no such heading", path, target)
			}
		}
		if fences := bytes.Count(text, []byte("\n```")); fences%2 != 0 {
			t.Errorf("%s: a fence is not closed", path)
		}
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}
