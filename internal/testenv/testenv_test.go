package testenv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// A recorder is a testing.TB that notes how a Need ended instead of ending the test.
type recorder struct {
	testing.TB
	skipped, failed bool
	text            string
}

type ended struct{}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = true
	r.end(fmt.Sprintf(format, args...))
}

func (r *recorder) Skip(args ...any) {
	r.skipped = true
	r.end(fmt.Sprint(args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = true
	r.end(fmt.Sprintf(format, args...))
}

func (r *recorder) end(text string) {
	r.text = text
	panic(ended{})
}

// outcome runs a Need and returns how it ended.
func outcome(t *testing.T, need func(testing.TB)) (r *recorder) {
	r = &recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != (ended{}) {
			panic(p)
		}
	}()
	need(r)
	return r
}

func TestMissIsSkipAndFailureInCI(t *testing.T) {
	testenv.NeedPython(t)
	need := func(r testing.TB) { testenv.NeedPython(r, "no_such_module_at_all") }
	t.Setenv("LLAMATAP_CI", "")
	if r := outcome(t, need); !r.skipped || r.failed || !strings.Contains(r.text, "get it: ") {
		t.Errorf("without CI: %+v", r)
	}
	t.Setenv("LLAMATAP_CI", "1")
	if r := outcome(t, need); r.skipped || !r.failed || testenv.Excused(r.text) {
		t.Errorf("in CI: %+v", r)
	}
}

func TestPythonHasOracles(t *testing.T) {
	testenv.NeedPython(t, "numpy", "lz4.frame", "zstandard")
}

func TestSlowIsExcused(t *testing.T) {
	t.Setenv("LLAMATAP_NIGHTLY", "")
	r := outcome(t, testenv.Slow)
	if !r.skipped || !testenv.Excused(r.text) {
		t.Errorf("a slow test must be skipped with an excuse: %+v", r)
	}
	if testenv.Excused("flaky today") {
		t.Error("any other reason must not be an excuse")
	}
}
