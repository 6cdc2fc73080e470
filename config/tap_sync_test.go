package config

import (
	"testing"
	"time"
)

func TestSync(t *testing.T) {
	for text, want := range map[string]Sync{
		"":               {"interval", time.Second},
		"none":           {"none", 0},
		"token":          {"token", 0},
		"interval":       {"interval", time.Second},
		"interval:200ms": {"interval", 200 * time.Millisecond},
		"interval:1h":    {"interval", time.Hour},
	} {
		args := []string{"--tap-layers=1"}
		if text != "" {
			args = append(args, "--tap-sync="+text)
		}
		tap := mustResolve(t, world{}, args...)
		if tap.Sync != want {
			t.Errorf("%q: %+v, want %+v", text, tap.Sync, want)
		}
		if got := tap.Echo().Settings["sync"].Value; got != want.String() {
			t.Errorf("%q is echoed as %v", text, got)
		}
	}
}
