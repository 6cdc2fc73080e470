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

// TestSecurityModel: each test that the page names exists, and each row of what somebody cannot do names one.
func TestSecurityModel(t *testing.T) {
	text, err := os.ReadFile("docs/SECURITY_MODEL.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "grep", "--untracked", "-hoE", "^func (Test|Fuzz)[A-Za-z0-9]+").Output()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, name := range strings.Fields(string(out)) {
		there[name] = true
	}
	tests := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		names := tests.FindAllStringSubmatch(line, -1)
		for _, name := range names {
			if !there[name[1]] {
				t.Errorf("there is no %s", name[1])
			}
		}
		cells := strings.Split(line, "|")
		if len(cells) < 7 || strings.HasPrefix(cells[1], "---") || strings.Contains(line, "shown by") {
			continue
		}
		rows++
		if strings.TrimSpace(cells[3]) != "" && len(names) == 0 {
			t.Errorf("nothing shows that they cannot: %s", line)
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}
