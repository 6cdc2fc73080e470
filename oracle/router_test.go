//go:build linux

package oracle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestRouter: a llama-server without a model starts a server for each model that is asked for. Each of them is recorded
// by the flags that the router was given; without flags they work as without llamatap.
func TestRouter(t *testing.T) {
	models := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Symlink(testenv.Model(t), filepath.Join(models, name+".gguf")); err != nil {
			t.Fatal(err)
		}
	}
	binary := testenv.NeedBinary(t)
	for how, line := range map[string][]string{
		"exec":  {"exec", "--tap-requests", "--tap-out", "DIR", "--", "llama-server"},
		"front": {"llama-server", "--tap-requests", "--tap-out", "DIR"},
		"plain": {"llama-server"},
	} {
		t.Run(how, func(t *testing.T) {
			out := t.TempDir()
			full := []string{binary}
			for _, arg := range append(line, "--models-dir", models, "-c", "512", "-t", "1", "-np", "1") {
				if arg == "DIR" {
					arg = out
				}
				full = append(full, arg)
			}
			s := serveBy(t, out, full...)
			answers := map[string]completionAnswer{}
			for _, model := range []string{"a", "b"} {
				var a completionAnswer
				s.post(t, "/completion", map[string]any{"model": model, "prompt": "func main() {", "n_predict": 5}, &a)
				if answers[model] = a; a.Predicted == 0 {
					t.Fatalf("%s answers %+v\n%s", model, a, s.stderr.String())
				}
			}
			s.stop()
			dirs := runDirs(t, out)
			if want := map[bool]int{true: 0, false: 2}[how == "plain"]; len(dirs) != want {
				t.Fatalf("runs %v, want %d\n%s", dirs, want, s.stderr.String())
			}
			for _, dir := range dirs {
				var meta rundir.Metadata
				readJSON(t, filepath.Join(dir, rundir.MetadataName), &meta)
				name := filepath.Base(meta.Model.Path)
				a := answers[name[:1]]
				r, err := resources.OpenRequests(t.Context(), dir)
				if err != nil || len(r.All) != 1 || r.All[0].Output != int64(a.Predicted) ||
					r.All[0].Prompt != int64(a.Evaluated) || r.All[0].ArrivalNS == 0 {
					t.Errorf("%s: %v, %+v, answered %+v", name, err, r, a)
				}
			}
		})
	}
}
