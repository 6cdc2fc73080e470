//go:build linux

package oracle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRedact looks into every byte of a run for the words that went in and came out.
func TestRedact(t *testing.T) {
	const prompt = "func reverseString(s string) string {"
	o := llamatap(t, "run", "--tap-tensors", "l_out", "--tap-redact", "text", "-p", prompt, "-n", "24", "--temp", "0",
		"-t", "1").good(t)
	words := append(strings.Fields(o.stdout), "reverseString", "string", "func")
	text, plain := 0, 0
	for _, dir := range o.dirs {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			for _, word := range words {
				// Shorter ones are punctuation, which JSON has too.
				if len(word) > 3 && strings.Contains(string(data), word) {
					t.Errorf("%s holds %q", filepath.Base(path), word)
				}
				plain++
			}
			text++
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(o.dirs) != 1 || text < 5 || plain < 50 {
		t.Fatalf("%d folders, %d files, %d words looked for", len(o.dirs), text, plain)
	}
	var tokens struct {
		Tokens []map[string]any `json:"tokens"`
	}
	data, err := os.ReadFile(filepath.Join(o.dirs[0], "activations_tokens.json"))
	if err == nil {
		err = json.Unmarshal(data, &tokens)
	}
	if err != nil || len(tokens.Tokens) < 30 {
		t.Fatalf("%v, %d tokens", err, len(tokens.Tokens))
	}
	for i, token := range tokens.Tokens {
		word, there := token["token_text"]
		if id, known := token["token_id"].(float64); word != "" || !there || !known || id <= 0 && i > 0 {
			t.Errorf("token %d: %v", i, token)
		}
	}
	llamatap(t, "verify", o.dirs[0]).good(t)
}
