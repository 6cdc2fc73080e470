package server

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestAskingDoesNotWait leaves a run alone that does not answer, asks it once at a time, and hears it when it does.
func TestAskingDoesNotWait(t *testing.T) {
	var a asking
	asked, release := make(chan string, 10), make(chan struct{})
	slow := func(dir string, c Command) (json.RawMessage, error) {
		asked <- dir + c.Command
		<-release
		return json.RawMessage(`{}`), nil
	}
	for range 2 {
		if text := a.status("slow ", slow); text != nil {
			t.Errorf("answered %s", text)
		}
	}
	if len(asked) != 1 || <-asked != "slow status" {
		t.Errorf("it was asked %d times", len(asked)+1)
	}
	if text := a.status("other", func(string, Command) (json.RawMessage, error) {
		return json.RawMessage(`1`),
			nil
	}); string(text) != "1" {
		t.Errorf("another run: %s", text)
	}
	if text := a.status("gone", func(string, Command) (json.RawMessage, error) {
		return nil,
			errors.New("gone")
	}); text != nil {
		t.Errorf("one that is gone: %s", text)
	}
	close(release)
	for string(a.status("slow ", slow)) != "{}" {
	}
}
