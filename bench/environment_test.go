package bench

import (
	"strings"
	"testing"
)

// TestEnvironmentText prints what is known and omits the rest.
func TestEnvironmentText(t *testing.T) {
	cpuinfo := "processor\t: 0\nmodel name\t: A CPU\ncpu MHz\t\t: 2600.5\n\nprocessor\t: 1\ncpu MHz\t\t: 800.0\n"
	if got := megahertz.FindStringSubmatch(cpuinfo); got == nil || got[1] != "2600.5" {
		t.Errorf("frequency %q", got)
	}
	e := Environment{OS: "linux/amd64", CPU: "A CPU", CPUs: 2, MHz: 2600.5, Governor: "performance", LoadAvg: "1 2 3",
		Llama: "0.7.0", Spin: Spin{NS: 5e8, LostShare: 0.01, LongestNS: 2e6}}
	for _, want := range []string{"A CPU at 2600 MHz, 2 CPUs, governor performance", "llama.cpp 0.7.0",
		"lost 1.00 % of 500 ms, at most 2.00 ms", "load 1 2 3"} {
		if !strings.Contains(e.String(), want) {
			t.Errorf("no %q in %s", want, e.String())
		}
	}
	e.MHz, e.Governor, e.LoadAvg = 0, "", ""
	if text := e.String(); strings.Contains(text, "MHz") || strings.Contains(text, "governor") ||
		strings.Contains(text, "load") {
		t.Errorf("%s", text)
	}
	here := LookAround("")
	if here.CPUs < 1 || here.Time == "" || here.Spin.NS == 0 || here.BuildNumber != nil {
		t.Errorf("%+v", here)
	}
}
