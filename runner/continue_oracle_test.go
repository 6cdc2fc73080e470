//go:build llama

package runner_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// TestContextShift goes on behind a full context, several times.
func TestContextShift(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	base := []string{"-m", testenv.Model(t), "-p", longPrompt, "-n", "300", "-c", "256", "-t", "1", "--ignore-eos",
		"--context-shift"}
	for _, args := range brief(testenv.ByDay([][]string{
		{"--temp", "0"}, {"-s", "3", "--keep", "20"}, {"-s", "4", "--keep", "-1"},
		{"--temp", "0", "-ctk", "q8_0", "--keep", "5000"},
	}, 2), 1) {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			r := same(t, append(base, args...)...)
			if r.Finish != runner.FinishLength || r.Tokens != 300 || r.Shifts < 2 {
				t.Errorf("result %+v", r)
			}
		})
	}
	for _, args := range [][]string{{"-n", "-2"}, {"--no-context-shift"}} {
		if r := same(t, append(append(base, "--temp", "0"), args...)...); r.Finish != runner.FinishContext ||
			r.Shifts != 0 {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestContextShiftImpossible has a recurrent memory, which llama.cpp does not shift.
func TestContextShiftImpossible(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	var warnings strings.Builder
	cfg := parse(t, "-m", synthetic(t, "jamba"), "-p", "func", "-n", "5", "-c", "256", "-t", "1", "--temp", "0",
		"--context-shift")
	if _, err := runner.Run(context.Background(), runner.Options{Config: cfg, Stderr: &warnings}); err != nil {
		t.Fatal(err)
	}
	shifts := warnings.Len() == 0
	r := same(t, "-m", synthetic(t, "jamba"), "-p", "func", "-n", "300", "-c", "256", "-t", "1", "--temp", "0",
		"--ignore-eos", "--context-shift")
	if shifts != (r.Shifts > 0) {
		t.Errorf("%d shifts, and the warning %q", r.Shifts, warnings.String())
	}
}

func TestReversePrompt(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	base := []string{"-m", testenv.Model(t), "-p", "func (r *Reader) Read(", "-n", "60", "--temp", "0", "-t", "1"}
	whole, _ := ours(t, base...)
	t.Logf("without: %q", whole)
	for name, test := range map[string]struct {
		args []string
		ends bool
	}{
		"a word": {[]string{"-r", "return"}, true}, "one token": {[]string{"-r", ","}, true},
		"a line":          {[]string{"-r", `{\n`}, true},
		"without escapes": {[]string{"--no-escape", "-r", `{\n`}, false},
		"the second":      {[]string{"-r", "zzz", "-r", "("}, true}, "none": {[]string{"-r", "zzz"}, false},
		"the prompt's end": {[]string{"-r", "Read("}, true},
		"a control token":  {[]string{"-r", "<|endoftext|>"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := same(t, append(base, test.args...)...)
			if (r.Finish == runner.FinishReverse) != test.ends || name == "the prompt's end" && r.Tokens != 0 {
				t.Errorf("result %+v", r)
			}
		})
	}
}

// TestSpecial shows control tokens; with this seed the model ends the text itself.
func TestSpecial(t *testing.T) {
	text, _ := sameText(t, "-m", testenv.Model(t), "-p", "}\n", "-n", "300", "-s", "1", "--temp", "4", "--top-k", "0",
		"--top-p", "1", "--min-p", "0", "-t", "1", "-sp")
	if !strings.HasSuffix(text, "<|endoftext|>") {
		t.Errorf("no control token is shown, so this tests nothing: take another seed; %q", text)
	}
}

// TestPromptEnds has the prompt decoded in batches, one of which ends with a token that ends a text.
func TestPromptEnds(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	for _, prompt := range []string{"a b c<|endoftext|>d e f", "a b c d<|endoftext|>e f", "a b c d e f<|endoftext|>"} {
		for _, b := range []string{"4", "5", "6"} {
			same(t, "-m", testenv.Model(t), "-p", prompt, "-n", "10", "--temp", "0", "-t", "1", "-b", b)
		}
	}
}

// cached runs both programs with the same prompt cache, each with its own copy, and compares texts and what the
// files hold then.
func cached(t *testing.T, cache []byte, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	var files [2]string
	for i, name := range []string{"theirs", "ours"} {
		files[i] = filepath.Join(dir, name)
		if cache != nil {
			if err := os.WriteFile(files[i], cache, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := stock(t, append(args, "--prompt-cache", files[0])...)
	got, _ := ours(t, append(args, "--prompt-cache", files[1])...)
	if got = strings.ReplaceAll(got, "\x00", ""); got != want {
		t.Errorf("%q:\n got %q\nwant %q", args, got, want)
	}
	theirs, theirErr := os.ReadFile(files[0])
	own, ourErr := os.ReadFile(files[1])
	if (theirErr == nil) != (ourErr == nil) || !bytes.Equal(theirs, own) {
		t.Errorf("%q: the cache has %d bytes (%v), llama-completion's has %d (%v)", args, len(own), ourErr, len(theirs),
			theirErr)
	}
	return own
}

// TestPromptCache writes prompt caches with one program and reads them with the other, both ways, as the files are
// the same.
func TestPromptCache(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	models := testenv.ByDay([]string{testenv.Model(t), synthetic(t, "gemma2"), synthetic(t, "mamba")}, 2)
	for _, model := range brief(models, 1) {
		t.Run(strings.TrimSuffix(filepath.Base(model), ".gguf"), func(t *testing.T) {
			base := []string{"-m", model, "-n", "20", "-c", "512", "-s", "3", "-t", "1", "-p"}
			prompt := longPrompt + "func main"
			cache := cached(t, nil, append(base, prompt)...)
			if len(cache) < 1000 {
				t.Fatalf("the cache has %d bytes", len(cache))
			}
			cached(t, cache, append(base, prompt)...)
			cached(t, cache, append(base, prompt+"() {\n\tx := 1")...)
			cached(t, cache, append(base, longPrompt+"type x struct {", "-b", "16")...)
			cached(t, cache, append(base, longPrompt[:40])...)
			cached(t, cache, append(base, "no such begin")...)
			cached(t, cache, append(base, "no such begin", "--prompt-cache-ro", "--prompt-cache-all")...)
			cached(t, cache, append(base, "")...)
			all := cached(t, nil, append(base, "func main", "--prompt-cache-all")...)
			cached(t, all, append(base, "", "--prompt-cache-all")...)
			cached(t, []byte{}, append(base, "func main")...)
			cached(t, nil, append(base, "f", "--prompt-cache-all", "--context-shift")...)
		})
	}
}

// TestPromptCacheIsUsed checks that what is cached is not decoded.
func TestPromptCacheIsUsed(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	args := []string{"-p", longPrompt, "-n", "5", "-t", "1", "--temp", "0", "--prompt-cache", cache}
	want, first := ours(t, args...)
	got, second := ours(t, args...)
	if first.CachedTokens != 0 || second.PromptTokens != 0 || second.CachedTokens != first.PromptTokens || got != want {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file holds the prompt: %v, %v", info, err)
	}
	if files, _ := filepath.Glob(cache + "*"); len(files) != 1 {
		t.Errorf("left behind: %q", files)
	}
}

func TestPromptCacheErrors(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	ours(t, "-m", synthetic(t, "llama"), "-p", longPrompt, "-n", "1", "-t", "1", "--prompt-cache", other)
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("this is no state"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, cache string
		is          error
		want        string
	}{
		{"a folder", dir, nil, "not a regular file"},
		{"below a file", filepath.Join(text, "x"), nil, "not a directory"},
		{"in no folder", filepath.Join(dir, "none", "x"), os.ErrNotExist, "can be written to"},
		{"of another model", other, llama.ErrState, "delete it"},
		{"a text", text, llama.ErrState, "delete it"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := runner.Run(context.Background(),
				runner.Options{Config: parse(t, "-p", "func main() {", "-n", "1", "-t", "1", "--prompt-cache",
					test.cache)})
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line with %q", err, test.want)
			}
			t.Log(err)
		})
	}
}
