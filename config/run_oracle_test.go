package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/testenv"
)

// stockOption is what llama-completion's help says of an option.
type stockOption struct{ names, text string }

var (
	stockHead = regexp.MustCompile(`^(-[^ ].*?)(?:  +(.*))?$`)
	stockName = regexp.MustCompile(`--?[A-Za-z][A-Za-z0-9-]*`)
	stockEnv  = regexp.MustCompile(`\(env: ([A-Z_]+)\)`)
	// numbers and lists of samplers
	stockDef = regexp.MustCompile(`\(default: (-?[0-9.]+|[a-z_]+;[a-z_;]+|edsk[a-z]+)[,)]`)
	stockGap = regexp.MustCompile(`^(-[A-Za-z]+,) +`)
)

// stockOptions reads llama-completion's help. What is behind the flags of a line and not their value is text.
func stockOptions(t *testing.T) (options []stockOption) {
	t.Helper()
	out, err := testenv.NeedTool(t, "llama-completion").Command("--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		switch m := stockHead.FindStringSubmatch(stockGap.ReplaceAllString(line, "$1 ")); {
		case m != nil:
			options = append(options, stockOption{m[1], m[2]})
		case len(options) > 0:
			options[len(options)-1].text += " " + strings.TrimSpace(line)
		}
	}
	return options
}

// TestRunFlagsAreStock compares names, environment variables and defaults of the table with llama-completion's own
// help.
func TestRunFlagsAreStock(t *testing.T) {
	stock := stockOptions(t)
	older := []string{"--no-mmap", "--mlock"} // flags that older versions had
	defaults := 0
	var flags cli.Flags
	NewRun().Define(&flags)
	for i := range llamaOptions {
		o := &llamaOptions[i]
		if o.own || slices.Contains(older, o.flag) {
			continue
		}
		names := slices.Concat(flags.List[i].Names, flags.List[i].Off)
		at := slices.IndexFunc(stock,
			func(s stockOption) bool { return slices.Contains(stockName.FindAllString(s.names, -1), names[0]) })
		if at < 0 {
			t.Errorf("llama-completion has no %s", names[0])
			continue
		}
		theirs := stockName.FindAllString(stock[at].names, -1)
		// one row for two options
		if slices.Sort(theirs); !slices.Equal(theirs, slices.Sorted(slices.Values(names))) && o.key != "json-schema" {
			t.Errorf("names %q, llama-completion's %q", names, theirs)
		}
		if env := stockEnv.FindStringSubmatch(stock[at].text); env == nil && o.env != "" || env != nil &&
			env[1] != o.env {
			t.Errorf("%s: environment variable %q, llama-completion's %q", names[0], o.env, env)
		}
		if byDef := stockDef.FindStringSubmatch(stock[at].text); byDef != nil {
			if defaults++; byDef[1] != o.byDef {
				t.Errorf("%s: default %q, llama-completion's %q", names[0], o.byDef, byDef[1])
			}
		}
	}
	if defaults < 35 {
		t.Errorf("only %d defaults were found in llama-completion's help", defaults)
	}
}
