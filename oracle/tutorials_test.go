//go:build linux

package oracle

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")
	numbers = regexp.MustCompile(`[0-9][0-9.,]*`)
	blanks  = regexp.MustCompile(`\s+`)
)

// TestTutorials runs every command of docs/tutorials, and finds every line of the output that they show: numbers may
// differ, an ellipsis stands for anything, and further lines may come between.
func TestTutorials(t *testing.T) {
	testenv.NeedPrograms(t, "llama-completion", "llama-cli")
	testenv.NeedBinary(t)
	root := testenv.Root(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs/tutorials/*.md"))
	if err != nil || len(pages) != 5 {
		t.Fatalf("%d tutorials, want 5 (%v)", len(pages), err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for _, name := range []string{"bin", "models", "examples"} {
				if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			output := ""
			for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
				if block[1] == "sh" {
					output = shellBlock(t, dir, block[2])
					continue
				}
				for line := range strings.Lines(block[2]) {
					if !showsLine(output, line) {
						t.Errorf("the tutorial shows %q; the commands printed\n%s", line, output)
					}
				}
			}
		})
	}
}

// shellBlock runs the commands of a block as a user would type them, and returns what they print.
func shellBlock(t *testing.T, dir, commands string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", commands)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s%v\n%s", commands, err, out)
	}
	return string(out)
}

// showsLine reports whether output has a line as the tutorial shows it.
func showsLine(output, line string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(line))
	pattern = numbers.ReplaceAllString(strings.ReplaceAll(pattern, `\.`, "."), `[0-9.,]+`)
	pattern = blanks.ReplaceAllString(strings.ReplaceAll(pattern, "…", ".*"), `\s+`)
	return regexp.MustCompile(`(?m)^\s*` + pattern + `\s*$`).MatchString(output)
}
