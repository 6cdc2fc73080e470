package testenv_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// generate runs llama-completion greedily on the default model and returns its text and its log.
func generate(t *testing.T, env string, args ...string) (text, log string) {
	t.Helper()
	args = append([]string{
		"-m", testenv.Model(t), "-p", "The little gopher", "-n", "8", "--temp", "0", "-t", "1",
		"-no-cnv", "--no-display-prompt", "-lv", "4",
	}, args...)
	cmd := testenv.NeedTool(t, "llama-completion").Command(args...)
	cmd.Env = append(os.Environ(), env)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

// TestToolRunsOnDist shows that a stock tool takes loader, libraries and CPU backend from dist/, and does not even
// look at what the machine has installed.
func TestToolRunsOnDist(t *testing.T) {
	dist := testenv.NeedLlama(t)
	strace := testenv.NeedStrace(t)
	trace := filepath.Join(t.TempDir(), "trace")
	tool := testenv.NeedTool(t, "llama-completion")
	cmd := tool.Command("-m", testenv.Model(t), "-p", "a", "-n", "1", "-no-cnv")
	cmd.Args = append([]string{strace, "-f", "-e", "trace=%file", "-o", trace, tool.Path}, cmd.Args[1:]...)
	cmd.Path = strace
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	opened, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	backends := 0
	for line := range strings.Lines(string(opened)) {
		_, path, _ := strings.Cut(line, `"`)
		if strings.Contains(line, "/etc/") || strings.HasPrefix(path, dist+"/") && strings.Contains(line, "ENOENT") {
			continue
		}
		if strings.Contains(line, "libggml-cpu-") {
			backends++
		}
		ours := strings.Contains(line, "ggml") || strings.Contains(line, "libllama") ||
			strings.Contains(line, "libstdc++")
		if ours && !strings.HasPrefix(path, dist+"/") {
			t.Errorf("looked at outside dist: %s", line)
		}
	}
	if backends == 0 {
		t.Error("no CPU backend was opened")
	}
}

func TestRPCDeviceGeneratesTheSameText(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	want, _ := generate(t, "")
	got, log := generate(t, testenv.RPCBackend(t), "--rpc", endpoint, "-ngl", "99")
	if !strings.Contains(log, "RPC0["+endpoint+"] model buffer size") {
		t.Errorf("the model was not on the RPC device:\n%s", log)
	}
	if want == "" || got != want {
		t.Errorf("RPC device: %q, CPU: %q", got, want)
	}
}
