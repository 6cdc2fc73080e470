package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Host is another host's server of runs, whose runs are shown as well, as NAME:RUN.
type Host struct {
	Name  string
	URL   *url.URL // of its root; with http, the token crosses the network as it is
	Token string
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ParseHost reads NAME=HOST:PORT, or NAME=URL.
func ParseHost(text string) (h Host, err error) {
	name, address, _ := strings.Cut(text, "=")
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || !hostForm.MatchString(name) || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" ||
		u.User != nil || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery+u.Fragment != "" {
		return h, fmt.Errorf("host %.80q: write NAME=HOST:PORT, or NAME=https://HOST:PORT", text)
	}
	return Host{Name: name, URL: &url.URL{Scheme: u.Scheme, Host: u.Host}}, nil
}

// hosts are the servers of other hosts.
type hosts []*host

// host is one of them.
type host struct {
	Host
	links *links
	proxy httputil.ReverseProxy
}

// hostState is what GET /api/v1/runs says of a host.
type hostState struct {
	Host  string `json:"host"`
	URL   string `json:"url"`
	Runs  int    `json:"runs"`
	Error string `json:"error,omitempty"` // why its runs are not listed
}

// hostTime is how long a host has to be connected, and for its list of runs; answerTime is how long it has to begin any
// other answer, such as the report of a long run.
const (
	hostTime   = 5 * time.Second
	answerTime = 2 * time.Minute
)

// newHosts checks that each host has a name of its own.
func newHosts(all []Host, l *links) (hosts, error) {
	var of hosts
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: hostTime}).DialContext,
		TLSHandshakeTimeout:   hostTime,
		ResponseHeaderTimeout: answerTime, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	for _, one := range all {
		if slices.ContainsFunc(of, func(h *host) bool { return h.Name == one.Name }) {
			return nil, fmt.Errorf("serve: two hosts are named %s: give each a name of its own", one.Name)
		}
		h := &host{Host: one, links: l}
		h.proxy = httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: quiet,
			Rewrite: h.rewrite, ModifyResponse: h.answered,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { writeError(w, h.failure(err)) }}
		of = append(of, h)
	}
	return of, nil
}

// split finds the host that the id of a run names; nil: it is a run of this host.
func (all hosts) split(id string) (of *host, rest string) {
	name, rest, _ := strings.Cut(id, ":")
	if i := slices.IndexFunc(all, func(h *host) bool { return h.Name == name }); i >= 0 && rest != "" {
		return all[i], rest
	}
	return nil, id
}

// runIn is the id of a run in the path of a request, as in /runs/{id}/report; "": there is none.
func runIn(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 2 && (parts[1] == "runs" || parts[1] == "logs") {
		return parts[2]
	}
	return ""
}

// hostOf returns the host of the run that a request is about; nil: this one.
func (all hosts) hostOf(r *http.Request) *host {
	h, _ := all.split(cmp.Or(runIn(r.URL.Path), r.URL.Query().Get("run")))
	return h
}

// pass lets the host of a run answer a request. The answer ends with the server, or with the client.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, h *host) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { // the proxy panics where an answer breaks off, so that net/http breaks off this one, too
		if p := recover(); p != nil && ctx.Err() == nil {
			panic(p)
		}
	}()
	h.proxy.ServeHTTP(s.stream(w), r.WithContext(ctx))
}

// rewrite makes a request of this server one of the host's.
func (h *host) rewrite(p *httputil.ProxyRequest) {
	name := h.Name + ":"
	u := *p.In.URL
	if id := runIn(u.Path); id != "" {
		u.Path, u.RawPath = strings.Replace(u.Path, id, strings.TrimPrefix(id, name), 1), ""
	}
	if query := u.Query(); u.RawQuery != "" {
		if query.Has("run") {
			query.Set("run", strings.TrimPrefix(query.Get("run"), name))
		}
		query.Del("key") // it was this server's
		u.RawQuery = query.Encode()
	}
	p.Out.URL = &u
	p.SetURL(h.URL)
	for _, header := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "Authorization"} {
		p.Out.Header.Del(header)
	}
	h.authorize(p.Out)
}

func (h *host) authorize(r *http.Request) {
	if h.Token != "" {
		r.Header.Set("Authorization", "Bearer "+h.Token)
	}
}

// errRefused is what a host answers that does not know the token.
var errRefused = errors.New("it refuses the token")

// answered makes an answer of the host one of this server's. Scripts of its pages have no origin, so that a host
// cannot read the token that a tab of this server has.
func (h *host) answered(r *http.Response) error {
	switch {
	case r.StatusCode == http.StatusUnauthorized: // the client's own token is right
		return errRefused
	case r.StatusCode/100 == 3:
		return fmt.Errorf("it redirects with %.40s, which its server never does", r.Status)
	}
	r.Header.Del("Set-Cookie")
	for name := range r.Header {
		if strings.HasPrefix(name, "Access-Control-") || name == "X-Content-Type-Options" || name == "Cache-Control" {
			r.Header.Del(name) // this server sets its own
		}
	}
	r.Header.Add("Content-Security-Policy", "sandbox allow-scripts")
	if r.Header.Get(runHeader) != "" {
		r.Header.Set(runHeader, h.Name+":"+r.Header.Get(runHeader))
	}
	id := runIn(r.Request.URL.Path)
	if r.Request.Method != http.MethodPost || r.StatusCode != http.StatusOK || id == "" {
		return nil
	}
	text, err := json.Marshal(h.links.to(h.Name + ":" + id)) // that host's link leads to that host
	r.Body.Close()
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", fmt.Sprint(len(text)))
	return err
}

// failure says why a host gave no answer.
func (h *host) failure(err error) error {
	if errors.Is(err, errRefused) {
		return fail(http.StatusBadGateway, "host %s (%s) refuses the token: give the one of its 'llamatap serve' with "+
			"--host-token", h.Name, h.URL.Host)
	}
	return fail(http.StatusBadGateway, "host %s (%s) does not answer: %w; is 'llamatap serve' running there?", h.Name,
		h.URL.Host, err)
}

// list asks the host for its runs, and names them as this server does.
func (h *host) list(ctx context.Context) (runs []Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL.String()+"/api/v1/runs?own", nil)
	if err != nil {
		return nil, err
	}
	h.authorize(r)
	answer, err := h.proxy.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		return nil, errRefused
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answered %.40s to GET /api/v1/runs", answer.Status)
	}
	var got struct{ Runs []Run }
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&got); err != nil {
		return nil, fmt.Errorf("read its list of runs: %w", err)
	}
	runs = got.Runs[:min(len(got.Runs), maxRuns)]
	for i := range runs {
		runs[i].Host, runs[i].ID = h.Name, h.Name+":"+runs[i].ID
	}
	return runs, nil
}

// list asks all hosts at once. Runs of a host that does not answer are missing, and its state says why.
func (all hosts) list(ctx context.Context) (runs []Run, states []hostState) {
	found := make([][]Run, len(all))
	states = make([]hostState, len(all))
	var asked sync.WaitGroup
	for i, h := range all {
		asked.Go(func() {
			got, err := h.list(ctx)
			found[i], states[i] = got, hostState{Host: h.Name, URL: h.URL.String(), Runs: len(got)}
			if err != nil {
				states[i].Error = h.failure(err).Error()
			}
		})
	}
	asked.Wait()
	return slices.Concat(found...), states
}

// newest sorts runs of several hosts: their names have the time when they began, on the clock of each.
func newest(runs []Run) {
	name := func(r Run) string { return strings.TrimPrefix(r.ID, r.Host+":") }
	slices.SortStableFunc(runs, func(a, b Run) int { return cmp.Compare(name(b), name(a)) })
}
