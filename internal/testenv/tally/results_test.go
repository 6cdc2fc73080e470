package main

import (
	"strings"
	"testing"
)

// tallied reads events and returns what print says of them.
func tallied(t *testing.T, ci bool, lines ...string) (text string, ok bool) {
	t.Helper()
	r := newResults()
	if err := read(strings.NewReader(strings.Join(lines, "\n")), r.add); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ok = r.print(&out, ci)
	return out.String(), ok
}

const (
	aPass   = `{"Action":"pass","Package":"p","Test":"TestA"}`
	aFail   = `{"Action":"fail","Package":"p","Test":"TestA"}`
	aSkip   = `{"Action":"skip","Package":"p","Test":"TestA"}`
	bPass   = `{"Action":"pass","Package":"p","Test":"TestB"}`
	pkgFail = `{"Action":"fail","Package":"p"}`
	aReason = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: no mood\n"}`
	aExcuse = `{"Action":"output","Package":"p","Test":"TestA",` +
		`"Output":"    a_test.go:1: slow: runs in make nightly\n"}`
	aVerdict = `{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}`
)

func TestPrint(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		ci, ok bool
		want   string // part of the text
	}{
		"all pass": {[]string{aPass, bPass}, true, true, "2 passed, 0 failed, 0 skipped"},
		"failure": {[]string{aFail, bPass, pkgFail}, false, false,
			"failed:  p TestA\n1 passed, 1 failed, 0 skipped"},
		"failed in one run":      {[]string{aPass, aFail, aPass}, false, false, "0 passed, 1 failed, 0 skipped"},
		"package does not build": {[]string{bPass, pkgFail}, false, false, "failed:  p\n1 passed, 1 failed"},
		"nothing ran": {[]string{`{"Action":"pass","Package":"p"}`, "noise"}, false, false,
			"0 passed, 0 failed, 0 skipped"},
		"skip": {[]string{bPass, aReason, aVerdict, aSkip}, false, true,
			"skipped: p TestA: a_test.go:1: no mood\n1 passed, 0 failed, 1 skipped"},
		"skip in CI": {[]string{bPass, aReason, aVerdict, aSkip}, true, false,
			"1 of the skipped tests could have run in CI"},
		"excused skip in CI": {[]string{bPass, aExcuse, aSkip}, true, true, "1 passed, 0 failed, 1 skipped"},
		"skipped in one run": {[]string{aPass, aReason, aSkip}, true, true, "1 passed, 0 failed, 0 skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			text, ok := tallied(t, c.ci, c.events...)
			if ok != c.ok || !strings.Contains(text, c.want) {
				t.Errorf("ok %v, want %v; text\n%swant %q", ok, c.ok, text, c.want)
			}
		})
	}
}

func TestLiveShowsFailuresOnly(t *testing.T) {
	r := newResults()
	var out strings.Builder
	err := read(strings.NewReader(strings.Join([]string{
		`{"Action":"output","Package":"p","Test":"TestB","Output":"chatter\n"}`, bPass,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"the cause\n"}`, aFail,
		`{"Action":"build-output","Output":"a.go:1: syntax\n"}`,
	}, "\n")), func(e event) { r.live(&out, e) })
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "the cause\na.go:1: syntax\n" {
		t.Errorf("printed %q", got)
	}
}
