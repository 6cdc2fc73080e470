package resource

import (
	"strings"
	"testing"
)

// stat is a line of /proc/PID/stat of a program with an unpleasant name.
const stat = "4711 (a) R (b\n) S 17 4711 4711 0 -1 4194560 1000 2000 3 4 50 60 700 800 20 0 9 0 123456 1048576 25 " +
	"18446744073709551615 1 1 0 0\n"

func TestParseStat(t *testing.T) {
	s, err := ParseStat([]byte(stat))
	want := Stat{
		ID: 4711, Parent: 17, Name: "a) R (b\n", State: 'S', Flags: 4194560, Start: 123456, Threads: 9,
		Own: StatCounts{1000, 3, 50, 60}, Waited: StatCounts{2000, 4, 700, 800},
	}
	if err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"", "1", "1 (x", "1 (x) S 1 2 3", ")1(", "x" + stat,
		strings.Replace(stat, " 123456 ", " many ", 1)} {
		if s, err := ParseStat([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, s)
		}
	}
	if s, err := ParseStat([]byte(strings.Replace(stat, " S ", " Z ", 1))); err != nil || !s.Ended() {
		t.Errorf("one that nobody has waited for: %+v, %v", s, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add(stat)
	f.Add("1 () R 0")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseStat([]byte(text)); err == nil && !strings.Contains(text, s.Name) {
			t.Errorf("%q is no name in %q", s.Name, text)
		}
	})
}
