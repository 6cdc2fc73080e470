package present

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// screen is a writer that several goroutines use.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the screen shows a text.
func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q never shows %q", s.String(), text)
		}
	}
}

// TestProgress: a bar appears also where the work has reported nothing yet, shows what is reported, and is gone in
// the end.
func TestProgress(t *testing.T) {
	var s screen
	p := NewProgress(&s, "comparing")
	s.await(t, "comparing   0%")
	shown := regexp.MustCompile(`comparing +[1-9][0-9]?%`)
	for i := int64(1); !shown.MatchString(s.String()); i++ { // what comes within 100 ms of a drawing is not drawn
		if p.Of(10+i%80, 100); i > 1000 {
			t.Fatalf("%q", s.String())
		}
		time.Sleep(60 * time.Millisecond)
	}
	p.Done()
	p.Done()
	before := s.String()
	p.Set(1)
	if s.String() != before {
		t.Errorf("a bar that is done is drawn: %q", s.String())
	}
	var none *Progress
	none.Set(1)
	none.Of(1, 2)
	none.Done()
	if NewProgress(nil, "x") != nil {
		t.Error("a bar without a writer")
	}
}
