package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// answered is the line of a result.
func answered(line int, text string, why Finish, ns int) string {
	return fmt.Sprintf(
		`{"line":%d,"text":%q,"tokens":[1],"token_ns":[%d],"finish":%q,"seed":0,"prompt_tokens":1,"seq_id":0,`+
			`"prompt_ns":%d,"generation_ns":1}`+"\n", line, text, ns, why, ns)
}

func answerOf(t *testing.T, line string) Answer {
	t.Helper()
	a, _, ok := NewAnswerReader(strings.NewReader(line)).Next()
	if !ok {
		t.Fatalf("no answer: %s", line)
	}
	return a
}

// Results that a file has stay in it until others come in their place.
func TestEarlierResults(t *testing.T) {
	first, second := answered(1, "a", FinishLength, 5), answered(2, "b", FinishLength, 5)
	again, other, cut := answered(2, "b", FinishLength, 9), answered(2, "c", FinishLength, 9),
		answered(2, "", FinishInterrupted, 9)
	for _, c := range []struct {
		name, had string
		come      []string
		ended     bool
		want      string
	}{
		{"nothing comes", first + second, nil, false, first + second},
		{"the same but for times", first + second, []string{first, again}, true, first + second},
		{"another one", first + second + "x", []string{first, other}, true, first + other},
		{"the first is another", second + first, []string{first}, false, first},
		{"one that was interrupted", first + cut, []string{first, second}, true, first + second},
		{"interrupted again", first + second, []string{first, cut}, false, first + second},
		{"a torn line", first + second[:20], []string{first, second}, true, first + second},
		{"too many", first + second, []string{first}, true, first},
		{"one was done before", first + other, []string{"", second}, true, first + second},
	} {
		path := filepath.Join(t.TempDir(), "results.jsonl")
		if err := os.WriteFile(path, []byte(c.had), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		a := answers{out: file, ready: map[int]Answer{}, earlier: newEarlier(file)}
		for i, line := range c.come {
			if line == "" {
				if _, err := a.earlier.next(); err != nil {
					t.Fatal(err)
				}
				a.head++
				continue
			}
			if err := a.add(i, answerOf(t, line)); err != nil {
				t.Fatal(err)
			}
		}
		if c.ended {
			err = a.end()
		}
		file.Close()
		if got, _ := os.ReadFile(path); err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s, want\n%s", c.name, err, got, c.want)
		}
	}
}
