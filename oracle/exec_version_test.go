//go:build linux

package oracle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// otherVersion is a llama.cpp that says that it is another version, and some of whose structures are: an object
// that stands before the real one.
func otherVersion(t *testing.T, text string) string {
	t.Helper()
	return compiled(t, `#include <stddef.h>
const char * llama_version(void) { return "99.1"; }
const char * ggml_version(void) { return "98.2"; }
struct value { char bytes[56]; };
`+text, "-shared", "-fPIC")
}

// execBefore is "llamatap exec" of a program behind an object of otherVersion.
func execBefore(t *testing.T, object string, args ...string) outcome {
	t.Helper()
	cmd := command(t, slices.Concat([]string{"exec"}, everything, []string{"--"}, args)...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+object)
	return finish(t, cmd, filepath.Join(t.TempDir(), "out"))
}

// TestOtherVersion taps programs whose llama.cpp is not the one that llamatap was built for. The same structures
// are used whatever the version says; without llama_batch the tensors and tokens of the graphs are there, and
// sequences are absent; with another ggml there is nothing, and the program runs all the same.
func TestOtherVersion(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	args := []string{program, testenv.Model(t), backends, "4"}
	want := execOf(t, everything, args...).good(t).capture(t).sealed(t)

	same := execBefore(t, otherVersion(t, ""), args...).capture(t).sealed(t)
	if same.meta.Llama.Version != "99.1" || same.meta.Llama.GGML != "98.2" ||
		same.meta.Extra["structures_unknown"] != nil {
		t.Errorf("metadata says %+v, %s", same.meta.Llama, same.meta.Extra["structures_unknown"])
	}
	if !slices.EqualFunc(same.tokens, want.tokens, sameToken) {
		t.Errorf("tokens %+v, want %+v", same.tokens, want.tokens)
	}

	batch := execBefore(t, otherVersion(t,
		"struct value llama_batch_get_one(int * tokens, int n) { return (struct value) {{0}}; }"), args...)
	c := batch.capture(t).sealed(t)
	if got := strings.Join(strings.Fields(string(c.meta.Extra["structures_unknown"])), ""); got != `["llama_batch"]` ||
		!strings.Contains(batch.stderr, "llama_batch") {
		t.Errorf("structures_unknown: %s\n%s", got, batch.stderr)
	}
	if n := equalCaptures(t, "another llama_batch", c, want); n < 100 || c.stdout != want.stdout {
		t.Errorf("%d tensors were compared; prints %q, want %q", n, c.stdout, want.stdout)
	}
	wantIDs(t, "another llama_batch", c.ids(), want.ids())
	for i, token := range c.tokens {
		if token.Seq != nil || token.Seqs != nil || token.Pos != int32(i) {
			t.Errorf("token %d: %+v", i, token)
		}
	}

	ggml := execBefore(t, otherVersion(t, "size_t ggml_tensor_overhead(void) { return 512; }"), args...)
	if ggml.status != 3 || ggml.stdout != want.stdout || len(ggml.dirs) != 0 ||
		!oneLine(lastLine(ggml.stderr), "nothing was recorded", "98.2", "LLAMA_PREFIX") {
		t.Errorf("status %d, prints %q, %d directories\n%s", ggml.status, ggml.stdout, len(ggml.dirs), ggml.stderr)
	}
}
