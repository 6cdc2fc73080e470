package ggmlhooks

import (
	"strings"
	"testing"
)

func TestParseTokenRule(t *testing.T) {
	for _, text := range []string{"all", "last", "3:7", "3:", "0:9", "every:4"} {
		rule, err := ParseTokenRule(text)
		if err != nil || rule.String() != text {
			t.Errorf("%q: %v, %v", text, rule, err)
		}
	}
	if rule, err := ParseTokenRule(":9"); err != nil || rule.String() != "0:9" {
		t.Errorf(":9: %v, %v", rule, err)
	}
	for _, text := range []string{"first", "7:3", "3:3", "-1:2", "every:0", "every:", "every:x", "1:2:3", "a:b",
		"99999999999999999999:"} {
		if rule, err := ParseTokenRule(text); err == nil {
			t.Errorf("%q was taken for %v", text, rule)
		}
	}
}

func TestParseLayerSet(t *testing.T) {
	set, err := ParseLayerSet("0-3,7, 9-9,1023")
	if err != nil {
		t.Fatal(err)
	}
	if got := set.String(); got != "0-3,7,9,1023" {
		t.Errorf("set %s", got)
	}
	if set.Has(4) || !set.Has(2) || set.Has(-1) || set.Max() != 1023 {
		t.Errorf("set %s holds the wrong layers", set)
	}
	for _, text := range []string{"", "3-1", "x", "1-", "-1", "1024", "1,,2"} {
		if _, err := ParseLayerSet(text); err == nil || !strings.Contains(err.Error(), "layer") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	for g := FullTensor; g <= MLPOnly; g++ {
		if got, err := ParseGranularity(g.String()); err != nil || got != g {
			t.Errorf("granularity %v: %v, %v", g, got, err)
		}
	}
}
