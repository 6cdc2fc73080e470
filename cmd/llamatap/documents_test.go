package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/cli"
)

var (
	fencedBlock = regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```")
	quotedText  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	wholeLine   = regexp.MustCompile(`^\s*(?:\$ |sudo |[A-Z_]+=\S* |nsys profile )*(?:bin/)?(llamatap .*)$`)
	afterwards  = regexp.MustCompile(`\s{2,}.*|\s[|<>#&;]\s?.*|\s*\d?>.*|\).*|\s&&.*`)
)

// TestDocumentedCommands: every command line of a fenced block names a command that exists, and flags that it has.
func TestDocumentedCommands(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/tutorials/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	lines := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fencedBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
				if command := wholeLine.FindStringSubmatch(strings.TrimRight(line, "\n")); command != nil {
					lines++
					checkDocumented(t, filepath.Base(page), command[1])
				}
			}
		}
	}
	if lines < 100 {
		t.Errorf("%d command lines found in %d documents", lines, len(pages))
	}
}

func checkDocumented(t *testing.T, page, line string) {
	t.Helper()
	words := strings.Fields(afterwards.ReplaceAllString(quotedText.ReplaceAllString(line, "X"), ""))[1:]
	if len(words) == 0 || words[0] == "version" || words[0] == "help" || strings.HasPrefix(words[0], "llamatap") {
		return
	}
	command, name, rest := program().Find(words)
	prefix := "-"
	switch {
	case strings.HasPrefix(words[0], "llama-"):
		command, name, prefix = execCommand(), words[0], "--tap-"
	case name == "":
		t.Errorf("%s: %s: there is no command %q", page, line, words[0])
		return
	case command.Define == nil && len(rest) > 0:
		t.Errorf("%s: %s: there is no command %q", page, line, name+" "+rest[0])
		return
	case command.Define == nil:
		return
	}
	f := &cli.Flags{}
	command.Define(f)
	if len(f.List) == 0 {
		return // it reads its arguments itself
	}
	if name == "run" || name == "bench" { // they take the tap's flags too, run some without tap-
		execCommand().Define(f)
	}
	for _, word := range rest {
		word, _, _ = strings.Cut(strings.Trim(word, "[]"), "=")
		if word == "--" {
			return
		}
		if !strings.HasPrefix(word, prefix) || len(word) < 2 || word[1] >= '0' && word[1] <= '9' ||
			strings.Contains(word, "…") {
			continue
		}
		same := func(n string) bool {
			return strings.TrimLeft(n, "-") == strings.TrimLeft(word, "-") || name == "run" &&
				n == "--tap-"+strings.TrimLeft(word, "-")
		}
		if word != "--help" && !slices.ContainsFunc(f.List, func(flag *cli.Flag) bool {
			return slices.ContainsFunc(slices.Concat(flag.Names, flag.Off, flag.Old), same)
		}) {
			t.Errorf("%s: %s: %s has no flag %s", page, line, name, word)
		}
	}
}
