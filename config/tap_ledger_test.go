package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLedgerImpliesRegions: the rows of the ledger name regions, so that their map is recorded too, and said to be.
func TestLedgerImpliesRegions(t *testing.T) {
	for line, mode := range map[string]string{"--tap-ledger": "rows", "--tap-ledger rows": "rows",
		"--tap-ledger=windows --tap-ledger-window 20ms": "windows"} {
		tap := mustResolve(t, world{}, strings.Fields(line)...)
		if !tap.Records(Ledger) || !tap.Records(Regions) || tap.Records(Activations) || !tap.Regions ||
			tap.Ledger != mode {
			t.Errorf("%s: %+v, %q", line, tap.Echo().Recorders, tap.Ledger)
		}
		if mode == LedgerWindows && tap.LedgerWindow != 20*time.Millisecond {
			t.Errorf("%s: windows of %v", line, tap.LedgerWindow)
		}
		if echo := tap.Echo().Settings; echo["regions"].Value != "on" || echo["ledger"].Value != mode {
			t.Errorf("%s: %+v", line, echo)
		}
	}
	tap := mustResolve(t, world{}, "--tap-ledger=off", "--tap-kv")
	if tap.Records(Ledger) || tap.Records(Regions) || tap.Regions {
		t.Errorf("off: %+v", tap.Echo())
	}
	tap = mustResolve(t, world{}, "--tap-ledger", "--tap-regions", "--tap-kv-block", "1")
	if n := len(slices.DeleteFunc(tap.Echo().Recorders, func(r Recorder) bool { return r != Regions })); n != 1 ||
		tap.KVBlock != 1 {
		t.Errorf("regions are recorded %d times, blocks of %d", n, tap.KVBlock)
	}
}

// TestKVEventsAlone: what shapes KV events needs an endpoint, and an endpoint that can be one.
func TestKVEventsAlone(t *testing.T) {
	for _, c := range []struct{ flag, want string }{
		{"--tap-kv-events-topic=a", "add --tap-kv-events ENDPOINT"},
		{"--tap-kv-events=127.0.0.1:5557", "write tcp://ADDRESS:PORT"},
		{"--tap-kv-events=connect:tcp://*:5557", "write tcp://ADDRESS:PORT"},
		{"--tap-kv-events-block=0", "give one from 1"},
	} {
		_, err := resolve(world{}, "--tap-requests", c.flag)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.flag, err, c.want)
		}
	}
}
