//go:build linux

package oracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// onTap are flags that have a front end recorded.
var onTap = []string{"--tap-tensors", "l_out"}

// front is one of llama.cpp's programs by the way of llamatap, with flags of the tap behind its own arguments.
// Tapped, its log loses nothing.
func front(t *testing.T, tap []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, slices.Concat([]string{name}, args, tap)...)
	cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+t.TempDir())
	if tap == nil {
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+testenv.NeedTool(t, name).Preload)
	}
	return cmd
}

// original is one of llama.cpp's programs itself, whose log loses nothing.
func original(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	return testenv.NeedTool(t, name).Command(args...)
}

// A result is what a program wrote and how it ended, without what differs from run to run.
type result struct {
	stdout, stderr, end string
}

// end runs a program to its end with an empty standard input, unless it has one. One that does not end is killed.
func end(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killer := time.AfterFunc(testenv.Patience(), func() { cmd.Process.Kill() })
	defer killer.Stop()
	cmd.Wait()
	how, _ := strings.CutSuffix(cmd.ProcessState.String(), " (core dumped)")
	return result{mask(stdout.String()), mask(withoutSummary(stderr.String())), how}
}

// masks are what no two runs of a program have in common.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m)^((?:\x1b\[\d+m)?)\d+\.\d\d\.\d{3}\.\d{3}((?:\x1b\[0m)? )`), "${1}TIME$2"},
	{regexp.MustCompile(`"time":\d+`), `"time":N`},
	{regexp.MustCompile(`\S*/(llama-[a-z-]+)`), "$1"}, // the name by which a program was called
	{regexp.MustCompile(`0x[0-9a-f]{6,}`), "ADDRESS"},
	{regexp.MustCompile(`ETA (?:[0-9.]+ hours )?[0-9.]+ minutes`), "ETA N"},
	// the words before minutes may be on the other output
	{regexp.MustCompile(`[0-9.]+ (ms|t/s|tokens per second|seconds|minutes)`), "N $1"},
	{regexp.MustCompile(`N ms / +[0-9.]+ %`), "N ms / N %"},
	// a spinner, also among log lines
	{regexp.MustCompile(`[-\\|/]?(?:\x08[-\\|/ ])+\x08`), ""},
	// where backends lie
	{regexp.MustCompile(`(?m)^(?:TIME [A-Z] )?` +
		`(?:ggml_backend_load_best: failed to enumerate|load_backend: loaded) .*\n`), ""},
	{regexp.MustCompile(`Loading model\.\.\. ?[-\\|/]?`), "Loading model..."},
}

// TestMask: what a clock printed makes no difference.
func TestMask(t *testing.T) {
	one, other := "compute_imatrix: 0.05 seconds per pass - ETA 0.02 minutes\n",
		"compute_imatrix: 0.12 seconds per pass - ETA 0.00 minutes\n"
	if got := mask(one); got != mask(other) || !strings.HasPrefix(got, "compute_imatrix: ") {
		t.Errorf("%q and %q", got, mask(other))
	}
}

func mask(text string) string {
	for _, m := range masks {
		text = m.pattern.ReplaceAllString(text, m.with)
	}
	return text
}

// summary is what llamatap adds to the error output when a recorded program has ended.
var summary = regexp.MustCompile(`(?s)(?:llamatap: nothing was recorded|\r?\n?llamatap  tokens  ).*$`)

func withoutSummary(stderr string) string { return summary.ReplaceAllString(stderr, "") }

// same demands that two programs wrote the same and ended alike.
func same(t *testing.T, got, want result) {
	t.Helper()
	if got.end != want.end {
		t.Errorf("ended with %q, the original with %q", got.end, want.end)
	}
	sameText(t, "stdout", got.stdout, want.stdout)
	if !slices.Equal(words(got.stderr), words(want.stderr)) {
		sameText(t, "stderr", got.stderr, want.stderr)
	}
}

// words are those of a text, in order: llama-cli has two threads that write to the error output, each when it comes
// to it.
func words(text string) []string {
	words := strings.Fields(text)
	slices.Sort(words)
	return words
}

// sameText reports the first line that differs.
func sameText(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	ours, theirs := strings.Split(got, "\n"), strings.Split(want, "\n")
	n := 0
	for n < min(len(ours), len(theirs))-1 && ours[n] == theirs[n] {
		n++
	}
	t.Errorf("%s differs from line %d on: %q, of the original %q", what, n+1, ours[n:min(n+2, len(ours))],
		theirs[n:min(n+2, len(theirs))])
}

// TestFrontEnds compares how programs end by themselves, tapped and not, with the original.
func TestFrontEnds(t *testing.T) {
	testenv.Slow(t)
	model := testenv.Model(t)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"llama-completion", []string{"--help"}},
		{"llama-bench", []string{"--help"}},
		{"llama-server", []string{"--version"}},
		{"llama-cli", []string{"--no-such-flag"}},
		{"llama-bench", []string{"--no-such-flag"}},
		{"llama-completion", []string{"-m", "/nowhere.gguf", "-p", "a"}},
		{"llama-cli", []string{"-m", "/nowhere.gguf"}},
		{"llama-bench", []string{"-m", "/nowhere.gguf"}},
		// abort()
		{"llama-bench", []string{"--offline", "-hf", "nothing"}},
		// EOF at its prompt
		{"llama-cli", []string{"-m", model, "-t", "1"}},
		// the same
		{"llama-completion", []string{"-m", model, "-t", "1", "-cnv", "-n", "3", "--temp", "0", "--log-disable"}},
		// an argument of the kind
		{"llama-completion", []string{"-m", model, "-t", "1", "-no-cnv", "-p", "--tap is the program's", "-n", "1",
			"-s", "1"}},
	} {
		t.Run(c.name+" "+c.args[len(c.args)-1], func(t *testing.T) {
			t.Setenv("GGML_NO_BACKTRACE", "1")
			want := end(t, original(t, c.name, c.args...))
			same(t, end(t, front(t, onTap, c.name, c.args...)), want)
			same(t, end(t, front(t, nil, c.name, c.args...)), want)
		})
	}
}

// TestFrontOfEveryProgram asks every program of the installation for help.
func TestFrontOfEveryProgram(t *testing.T) {
	testenv.Slow(t)
	programs, err := filepath.Glob(filepath.Join(testenv.NeedLlama(t), "usr", "bin", "*"))
	if err != nil || len(programs) < 10 {
		t.Fatal(programs, err)
	}
	for _, program := range programs {
		name := filepath.Base(program)
		t.Run(name, func(t *testing.T) {
			same(t, end(t, front(t, onTap, name, "--help")), end(t, original(t, name, "--help")))
		})
	}
}

// TestFrontWithoutTap: nothing of ours is in a program that nobody taps.
func TestFrontWithoutTap(t *testing.T) {
	cmd := front(t, nil, "llama-cli", "-m", testenv.Model(t), "-t", "1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Read(make([]byte, 1)) // by then it is llama-cli
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "maps"))
	stdin.Close()
	if err != nil || !strings.Contains(string(text), "/llama-cli\n") || strings.Contains(string(text), "libllamatap") {
		t.Errorf("%v\n%s", err, text)
	}
	cmd.Wait()
}

// TestFrontDescriptor: a file that the user gives a program as its descriptor 3 is the program's.
func TestFrontDescriptor(t *testing.T) {
	file, err := os.Open(textFile(t, "func main() {"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	args := []string{"-m", testenv.Model(t), "-t", "1", "-no-cnv", "-f", "/dev/fd/3", "-n", "3", "--temp", "0",
		"--log-disable"}
	give := func(cmd *exec.Cmd) result {
		cmd.ExtraFiles = []*os.File{file}
		return end(t, cmd)
	}
	want := give(original(t, "llama-completion", args...))
	cmd := front(t, onTap, "llama-completion", args...)
	same(t, give(cmd), want)
	sealedBelow(t, cmd)
}
