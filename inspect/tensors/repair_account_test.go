package tensors

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// packetBytes is what each packet of fill has in memory.
const packetBytes = 32

func account(packets uint64) *rundir.Account {
	all := rundir.Amount{Packets: packets, Bytes: packets * packetBytes}
	return &rundir.Account{Selected: all, Captured: all, Lost: []rundir.Loss{}}
}

// What a repair finds missing of a sealed run is lost in its account, too, which goes on balancing.
func TestRepairCounts(t *testing.T) {
	const all = 2 * tokens
	cutOff := rundir.Loss{Cause: "cut_off", Packets: 1, Bytes: packetBytes}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		lost   []rundir.Loss
		says   string
	}{
		{"cut", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "seg-00002"), rundir.StreamName, cut(1))
		}, []rundir.Loss{cutOff}, "seg-00002: activations.stream was not what"},
		{"cut, and one gone", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "seg-00002"), rundir.StreamName, cut(1))
			check(t, os.RemoveAll(filepath.Join(dir, "seg-00001")))
		}, []rundir.Loss{{Cause: "damaged", Packets: tokens, Bytes: tokens * packetBytes}, cutOff},
			"seg-00001 is gone, with all of its files: 6 tokens and 6 packets"},
		{"table", func(t *testing.T, dir string) {
			change(t, dir, "kv_block_lifecycle.parquet", flip(0))
		}, []rundir.Loss{}, "kv_block_lifecycle.parquet was not what"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := inSegments(t)
			c.damage(t, dir)
			for range 2 { // what is repaired stays
				_, err := Repair(dir, "test")
				check(t, err)
			}
			m, err := rundir.ReadMetadata(dir)
			check(t, err)
			want := rundir.Amount{Packets: all, Bytes: all * packetBytes}
			for _, l := range c.lost {
				want.Packets, want.Bytes = want.Packets-l.Packets, want.Bytes-l.Bytes
			}
			m.Account.Check()
			if a := m.Account; !reflect.DeepEqual(a.Lost, c.lost) || !reflect.DeepEqual(m.Losses, c.lost) ||
				a.Captured != want || len(a.Violations) > 0 || m.Streams[0].Packets != want.Packets || !m.Lossy ||
				!strings.HasPrefix(m.Repaired[0].What[0], c.says) {
				t.Errorf("account %+v, losses %+v, streams %+v, %q", a, m.Losses, m.Streams, m.Repaired)
			}
		})
	}
}

// Of tokens that were computed and are not there, inspect says how many they were.
func TestComputedTokens(t *testing.T) {
	for lost, want := range map[int]string{0: "12 (decode 12)", 1: "11 of 12 that were computed (decode 11)"} {
		dir := inSegments(t)
		change(t, filepath.Join(dir, "seg-00002"), rundir.StreamName, cut(lost))
		_, err := Repair(dir, "test")
		check(t, err)
		r, err := Open(dir)
		check(t, err)
		s, err := Summarize(r, Filter{})
		check(t, errors.Join(err, r.Close()))
		if text := s.tokensText(); !strings.HasPrefix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// inSegments is a sealed run in two segments, with a table.
func inSegments(t *testing.T) string {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	m := rundir.Metadata{Version: rundir.MetadataVersion, Created: time.Now(), Ended: time.Now(), RunID: d.ID(),
		Losses: []rundir.Loss{}, Account: account(2 * tokens), Tokens: &rundir.Tokens{Prompt: 2, Generated: 10},
		Streams: []rundir.Stream{{Name: rundir.StreamName, Packets: 2 * tokens, Codec: "lz4", DType: "f16"}}}
	for n := range 2 {
		s, err := d.Segment(n + 1)
		check(t, err)
		fill(t, s)
		name := rundir.SegmentName(n + 1)
		check(t, d.AddSegment(name))
		m.Segments = append(m.Segments, rundir.Segment{Name: name, Number: n + 1, Tokens: tokens, Packets: tokens})
	}
	f, err := d.Create("kv_block_lifecycle.parquet")
	check(t, err)
	_, err = f.Write([]byte("a table"))
	check(t, err)
	check(t, f.Close())
	check(t, d.WriteJSON(rundir.MetadataName, m))
	check(t, d.Seal())
	return d.Path()
}

// TestVerifyNewer: of metadata that a newer llamatap wrote, verify says what is wrong, and does not send to itself.
func TestVerifyNewer(t *testing.T) {
	dir := sealed(t)
	check(t, os.WriteFile(filepath.Join(dir, rundir.MetadataName), []byte(`{"version": 2}`), 0o600))
	v, err := Verify(dir)
	check(t, err)
	var said []string
	for _, f := range v.Findings {
		said = append(said, f.What)
	}
	if all := strings.Join(said, "\n"); v.OK || !strings.Contains(all, "version 2, this program reads 1") ||
		strings.Contains(all, "llamatap verify") {
		t.Error(all)
	}
}
