package config

import (
	"testing"
	"time"
)

func TestSegments(t *testing.T) {
	for _, c := range []struct {
		line []string
		want Segment
	}{
		{nil, Segment{}},
		{[]string{"--tap-segment=1G"}, Segment{Bytes: GiB}},
		{[]string{"--tap-segment=30M"}, Segment{Bytes: 30 * MiB}},
		{[]string{"--tap-segment=30m"}, Segment{Every: 30 * time.Minute}},
		{[]string{"--tap-segment=90s"}, Segment{Every: 90 * time.Second}},
		{[]string{"--tap-max-disk=1G"}, Segment{}},
		{[]string{"--tap-max-disk=1G:rotate"}, Segment{Bytes: 128 * MiB}},
		{[]string{"--tap-max-disk=1G:rotate", "--tap-segment=1h"}, Segment{Bytes: 128 * MiB, Every: time.Hour}},
		{[]string{"--tap-max-disk=1G:rotate", "--tap-segment=64M"}, Segment{Bytes: 64 * MiB}},
	} {
		tap := mustResolve(t, world{}, append(c.line, "--tap-layers=1")...)
		if got := tap.Segments(); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.line, got, c.want)
		}
	}
}

// TestMinFree: the floor that nobody asked for must not make a small disk useless.
func TestMinFree(t *testing.T) {
	for _, c := range []struct {
		line        string
		total, want uint64
	}{
		{"--tap-layers=1", 1 << 40, 1 << 30},
		{"--tap-layers=1", 100 << 20, 2 << 20},
		{"--tap-min-free=3G", 100 << 20, 3 << 30},
		{"--tap-min-free=0", 1 << 40, 0},
	} {
		if got := mustResolve(t, world{}, c.line, "--tap-layers=1").MinFree.Of(c.total); got != c.want {
			t.Errorf("%s: %d of %d bytes, want %d", c.line, got, c.total, c.want)
		}
	}
}

// TestDiskEcho: what metadata.json shows is what a user would write.
func TestDiskEcho(t *testing.T) {
	tap := mustResolve(t, world{}, "--tap-layers=1", "--tap-segment=1h", "--tap-max-disk=200G", "--tap-redact=text")
	settings := tap.Echo().Settings
	for key, want := range map[string]string{"segment": "1h", "max_disk": "200G:stop", "min_free": "auto",
		"redact": "text"} {
		if got := settings[key].Value; got != want {
			t.Errorf("%s: %v, want %s", key, got, want)
		}
	}
	if _, there := mustResolve(t, world{}, "--tap-layers=1").Echo().Settings["segment"]; there {
		t.Error("a segment is shown that nobody asked for")
	}
}
