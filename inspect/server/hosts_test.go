//go:build linux

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

const hostsToken = "the token of the hosts"

// hostOf serves runs as another host does.
func hostOf(t *testing.T, name string, o Options) (Host, *httptest.Server) {
	t.Helper()
	o.Token = hostsToken
	s := httptest.NewServer(newServer(t, o))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Host{name, u, hostsToken}, s
}

// listed are the runs and hosts that a server lists.
func listed(t *testing.T, s http.Handler) (ids []string, hosts []hostState) {
	t.Helper()
	var got struct {
		Runs  []Run
		Hosts []hostState
	}
	if err := json.Unmarshal(request(s, "/api/v1/runs").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Runs {
		ids = append(ids, r.ID)
	}
	return ids, got.Hosts
}

// TestHosts: a server shows the runs of two others, byte for byte as they do, and each keeps its token to itself.
func TestHosts(t *testing.T) {
	second := t.TempDir()
	const later = "run_20261121_130000_dddd"
	write(t, filepath.Join(second, "m", later, "resource.jsonl"), log7)
	write(t, filepath.Join(second, "m", later, "manifest.json"), `{"version":1}`)
	a, far := hostOf(t, "gpu-1", Options{Dir: folder(t), Control: func(string, Command) (json.RawMessage, error) {
		return json.RawMessage("{}"), nil
	}})
	b, _ := hostOf(t, "gpu-2", Options{Dir: second})
	s := newServer(t, Options{Dir: folder(t), Hosts: []Host{a, b}})

	ids, hosts := listed(t, s)
	want := []string{"gpu-2:" + later, "gpu-1:" + emptyRun, emptyRun, "gpu-1:" + openRun, openRun, "gpu-1:" + sealedRun,
		sealedRun}
	if strings.Join(ids, " ") != strings.Join(want, " ") {
		t.Errorf("listed %v, want %v", ids, want)
	}
	if len(hosts) != 2 || hosts[0].Runs != 3 || hosts[1].Runs != 1 || hosts[0].Error+hosts[1].Error != "" {
		t.Errorf("hosts: %+v", hosts)
	}
	for _, path := range []string{"/api/v1/resource-logs?run=%s&layer=1", "/api/v1/summary?run=%s", "/logs/%s"} {
		here := request(s, strings.Replace(path, "%s", "gpu-1:"+sealedRun, 1))
		there := request(far.Config.Handler, strings.Replace(path, "%s", sealedRun, 1),
			"Authorization", "Bearer "+hostsToken)
		if here.Code != 200 || here.Body.String() != there.Body.String() || here.Body.Len() == 0 {
			t.Errorf("%s: %d %s\nwant what the host answers: %s", path, here.Code, here.Body, there.Body)
		}
		if len(here.Header().Values("Cache-Control")) != 1 || strings.Contains(here.Body.String(), hostsToken) {
			t.Errorf("%s: header %v", path, here.Header())
		}
	}
	w := request(s, "PUT /api/v1/level?run=gpu-1:"+sealedRun+` {"level":"VERBOSE"}`, "Origin", "http://127.0.0.1:8080")
	if w.Code != http.StatusConflict || !strings.Contains(failed(t, w), "sealed") {
		t.Errorf("a level for a sealed run: %d %s", w.Code, w.Body)
	}
	if w := request(s, "/api/v1/summary?run=gpu-2:"+sealedRun); w.Code != http.StatusNotFound {
		t.Errorf("a run of another host: %d %s", w.Code, w.Body)
	}
	if w := request(s, "/api/v1/summary?run=gpu-3:"+sealedRun); w.Code != http.StatusNotFound {
		t.Errorf("a host that is not there: %d %s", w.Code, w.Body)
	}
}

// TestHostsReport: the link to a report of another host leads through this server, with a key of its own.
func TestHostsReport(t *testing.T) {
	const text = "<!doctype html><script>run()</script>"
	a, far := hostOf(t, "gpu-1", Options{Dir: folder(t), Report: func(_ context.Context, _ string,
		out io.Writer) error {
		_, err := io.WriteString(out, text)
		return err
	}})
	s := newServer(t, Options{Token: token, Hosts: []Host{a}})
	path := "/runs/gpu-1:" + sealedRun + "/report"
	var link struct{ Path string }
	decode(t, request(s, "POST "+path, "Authorization", "Bearer "+token).Body.Bytes(), &link)
	w := request(s, link.Path)
	if w.Code != 200 || w.Body.String() != text ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "'sha256-") {
		t.Errorf("%s: %d, %v, %s", link.Path, w.Code, w.Header(), w.Body)
	}
	for _, target := range []string{path, link.Path + "0", strings.Replace(link.Path, sealedRun, openRun, 1)} {
		if w := request(s, target); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if w := request(far.Config.Handler, strings.Replace(link.Path, "gpu-1:", "",
		1)); w.Code != http.StatusUnauthorized {
		t.Errorf("the host takes this server's key: %d", w.Code)
	}
	if w := request(s, "POST /runs/gpu-1:none/report", "Authorization", "Bearer "+
		token); w.Code != http.StatusNotFound {
		t.Errorf("a link to the report of a run that is not there: %d %s", w.Code, w.Body)
	}
}

// TestHostsAbsent: a host that is not there, refuses the token, or answers something else is named with the cause; the
// others are listed.
func TestHostsAbsent(t *testing.T) {
	a, _ := hostOf(t, "here", Options{Dir: folder(t)})
	wrong, _ := hostOf(t, "wrong-token", Options{Dir: folder(t)})
	wrong.Token = "another one"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := Host{"gone", &url.URL{Scheme: "http", Host: l.Addr().String()}, hostsToken}
	l.Close()
	odd := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(odd.Close)
	u, _ := url.Parse(odd.URL)
	s := newServer(t, Options{Hosts: []Host{a, wrong, gone, {"odd", u, ""}}})
	ids, hosts := listed(t, s)
	if len(ids) != 3 || len(hosts) != 4 {
		t.Fatalf("listed %v of %+v", ids, hosts)
	}
	for i, cause := range []string{"", "refuses the token", "connection refused", "404"} {
		if h := hosts[i]; (h.Error == "") != (cause == "") || !strings.Contains(h.Error, cause) {
			t.Errorf("%s: %q, want %q", h.Host, h.Error, cause)
		}
	}
	for _, path := range []string{"/api/v1/summary?run=wrong-token:" + sealedRun, "/runs/gone:" + sealedRun +
		"/report"} {
		if w := request(s, path); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "error") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestHostileHost: a host cannot set cookies, send a browser elsewhere, or run a script that has this server's origin.
func TestHostileHost(t *testing.T) {
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/logs") {
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
			return
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		fmt.Fprint(w, "<script>steal(sessionStorage)</script>")
	}))
	t.Cleanup(bad.Close)
	u, _ := url.Parse(bad.URL)
	s := newServer(t, Options{Hosts: []Host{{"bad", u, hostsToken}}})
	w := request(s, "/runs/bad:x/report", "Authorization", "Bearer "+token, "Cookie", "c=d")
	if got := w.Header(); got.Get("Content-Security-Policy") != "sandbox allow-scripts" ||
		got.Get("Set-Cookie") != "" ||
		got.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", w.Code, got)
	}
	if w := request(s, "/logs/bad:x"); w.Code != http.StatusBadGateway || w.Header().Get("Location") != "" {
		t.Errorf("redirected: %d %v", w.Code, w.Header())
	}
	if ids, hosts := listed(t, s); len(ids) != 0 || !strings.Contains(hosts[0].Error, "read its list of runs") {
		t.Errorf("%v %+v", ids, hosts)
	}
}

// TestHostsFollow: events of a live run of another host come as they are written, until this server ends.
func TestHostsFollow(t *testing.T) {
	g := newGrowing(t, Limits{})
	far := Host{Name: "far", URL: &url.URL{Scheme: "http", Host: g.addr}}
	addr, stop := listen(t, newServer(t, Options{Hosts: []Host{far}}))
	log := g.part(t, "resource.jsonl")
	fmt.Fprint(log, event(1))
	g.addr = addr
	lines, answer := g.follow(t, "&run=far:"+g.ID())
	for n := 1; n <= 3; n++ {
		if line, err := lines.ReadString('\n'); line != event(n) || err != nil {
			t.Fatalf("%q, %v; want line %d", line, err, n)
		}
		g.do(func() { fmt.Fprint(log, event(n+1)) })
	}
	if id := answer.Header.Get(runHeader); id != "far:"+g.ID() {
		t.Errorf("run %q", id)
	}
	if err := stop(); err != nil {
		t.Errorf("the server did not end: %v", err)
	}
	io.ReadAll(lines) // ends
}

// TestParseHost takes addresses, and refuses what would send the token elsewhere.
func TestParseHost(t *testing.T) {
	for text, want := range map[string]string{"a=10.0.0.1:80": "http://10.0.0.1:80", "gpu-1.x=https://h": "https://h",
		"a=http://[::1]:9/": "http://[::1]:9"} {
		if h, err := ParseHost(text); err != nil || h.URL.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, h.URL, err, want)
		}
	}
	for _, text := range []string{"", "a", "a=", "=h:1", "a b=h:1", "a=ftp://h", "a=http://u:p@h", "a=h/path",
		"a=h?q=1",
		"a:b=h:1"} {
		if h, err := ParseHost(text); err == nil {
			t.Errorf("%q is taken as %v", text, h)
		}
	}
}
