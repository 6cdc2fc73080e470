package doctor

import (
	"strings"
	"testing"
	"unicode/utf8"
)

var some = []Fact{
	{Topic: "llama.cpp", Name: "library", Status: OK, Value: "llama.cpp 0.7.0"},
	{Topic: "kernel", Name: "btf", Status: Limited, Value: strings.Repeat("many words ", 20),
		Costs: strings.Repeat("cost ", 40), Remedy: "none"},
	{Topic: "kernel", Name: "psi", Status: Unknown, Value: "why"},
}

func TestPrint(t *testing.T) {
	var plain, coloured strings.Builder
	if err := Print(&plain, some, false); err != nil {
		t.Fatal(err)
	}
	if err := Print(&coloured, some, true); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(plain.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > screenWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if text := plain.String(); !strings.HasPrefix(text,
		"llama.cpp\n  ok       library             llama.cpp 0.7.0\n\nkernel\n  limited  btf ") {
		t.Errorf("%s", text)
	}
	if strings.Contains(plain.String(), "\x1b") || strings.Count(coloured.String(), "\x1b[0m") != len(some) {
		t.Errorf("colours:\n%q\n%q", plain.String(), coloured.String())
	}
}

func TestVerdict(t *testing.T) {
	for want, facts := range map[string][]Fact{
		"llamatap can record here (1 ok, 1 limited, 0 missing, 1 unknown)": some,
		"llamatap cannot record here without: tap object (0 ok, 0 limited, 2 missing, 0 unknown)": {
			{Topic: "tap", Name: "object", Status: Missing}, {Topic: "counters", Name: "pmu", Status: Missing}},
		"llamatap can record here, if what is unknown is there: llama.cpp devices " +
			"(0 ok, 0 limited, 0 missing, 1 unknown)": {
			{Topic: "llama.cpp", Name: "devices", Status: Unknown}},
	} {
		if got := verdict(facts); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
