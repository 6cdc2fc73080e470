package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckYAML(t *testing.T) {
	for text, good := range map[string]bool{
		"": true, "a: [1, {b: c}]\n- - x\n---\n": true, strings.Repeat("-", 500): true,
		strings.Repeat(" * item\n", 500): true, "a: l_out*, *\n": true,
		strings.Repeat("[", 60000): false, strings.Repeat("[ # ]\n", 20000): false, strings.Repeat("- ", 100): false,
		strings.Repeat("a: [*b, *c]\n", 100): false,
		strings.Repeat("- *b\n", 100):        false,
	} {
		if err := CheckYAML([]byte(text)); (err == nil) != good || err != nil && !errors.Is(err, ErrTooDeep) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(path, 4); string(text) != "four" || err != nil {
		t.Error(text, err)
	}
	if _, err := ReadFile(path, 3); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := ReadFile(path+"x", 3); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
