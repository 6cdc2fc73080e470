package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/internal/bounded"
	"github.com/llamatap/llamatap/internal/terminal"
)

const serveHelp = `llamatap serve: show runs over HTTP

usage: llamatap serve DIR|--live [--listen HOST:PORT|unix:PATH] [--token @FILE]

Shows the resource events of a run directory, or of the runs in a folder, as they are recorded, and what they sum up to:

  GET /api/v1/resource-logs    events, a line of JSON each; parameters run, from_line, follow, event, layer
  GET /api/v1/summary, /kv     what 'llamatap resource summary' says; KV caches
  PUT /api/v1/level            {"level": "VERBOSE"} for a run that goes on; also {"command": "enable"}, "disable", "flush"
  POST /log-monitoring         {"prompt": "…", "stream": true} runs a prompt and records it below DIR, events as they come; -m gives the model
  GET /api/v1/runs, /metrics, /healthz, and the routes of system B: /sessions, /logs/ID, /logs/ID/stream

docs/SERVE.md tells more, and has a dashboard for Grafana. With --live only the newest run that goes on below DIR is shown; DIR is
then ./llamatap-runs if it is not given. INT or TERM ends the server, and the streams that it has.

Events hold prompts, so every request but /healthz needs a token: one is generated at each start, printed with the address as a link
that a browser opens, and kept in a file that you alone can read, which 'llamatap ctl' finds. A client sends it as
"Authorization: Bearer TOKEN". --token @FILE gives a lasting one, for Prometheus. A Unix socket can do without: --no-token.

  llamatap serve llamatap-runs
  llamatap ctl http://127.0.0.1:8080 level VERBOSE
  llamatap serve llamatap-runs --listen unix:serve.sock --no-token
  curl -N --unix-socket serve.sock 'http://localhost/api/v1/resource-logs?follow&event=output_token'

flags:
`

// defaultRuns is where runs are recorded unless they say otherwise.
const defaultRuns = "llamatap-runs"

// runServe serves until it is interrupted.
func runServe(args []string) error {
	var o server.Options
	flags := newFlags("serve", serveHelp)
	flags.BoolVar(&o.Live, "live", false, "show the newest run that goes on, and no other")
	var addr string
	flags.StringVar(&addr, "listen", "127.0.0.1:8080", "listen on `ADDRESS`: HOST:PORT, where port 0 takes a free one, or unix:PATH")
	flags.StringVar(&addr, "addr", addr, "the `ADDRESS`, as --listen")
	token := flags.String("token", "", "demand this `TOKEN` instead of a generated one; @FILE reads it from a file")
	flags.BoolVar(&o.NoToken, "no-token", false, "demand no token of clients of a Unix socket, which its mode 0600 guards")
	model := flags.String("model", "", "GGUF `FILE` that prompts of POST /log-monitoring are run with; the embedded model without it")
	flags.StringVar(model, "m", "", "the `FILE`, as --model")
	var origins stringList
	flags.Var(&origins, "cors-origin", "let web pages of this `ORIGIN`, such as http://localhost:3000, ask with the token; may be given several times")
	rest, err := parseFlags(flags, args, 1)
	if err != nil && o.Live { // perhaps because the folder is missing
		if again, failed := parseFlags(flags, append(slices.Clone(args), defaultRuns), 1); failed == nil {
			rest, err = again, nil
		}
	}
	if err != nil || rest == nil {
		return err
	}
	o.Dir = rest[0]
	if o.Token, err = serveToken(*token, o.NoToken, addr); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	o.Control = controlRun
	for _, origin := range origins {
		if err := server.CheckOrigin(origin); err != nil {
			return exitStatus{Code: 2, Err: fmt.Errorf("--cors-origin: %w", err)}
		}
	}
	o.Origins = origins
	attend(&o, *model)
	s, err := server.New(o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends it at once
	listener, err := server.Listen(addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	what := o.Dir
	if o.Live {
		what = "the newest live run below " + o.Dir
	}
	addr = server.AddressOf(listener)
	link := url.URL{Scheme: "http", Host: addr}
	if _, isPath := strings.CutPrefix(addr, "unix:"); isPath {
		link = url.URL{Opaque: addr}
	}
	note := ""
	if !o.NoToken {
		file, remove, err := server.SaveToken(addr, o.Token)
		if err != nil {
			return err
		}
		defer remove()
		link.Fragment = "token=" + o.Token
		note = "\nllamatap: its token is kept in " + file
	}
	fmt.Fprintf(terminal.Err, "llamatap: %s is shown at %s%s\n", what, link.String(), note)
	return s.Serve(ctx, listener)
}

// serveToken returns the token that clients must send: the given one, a new one, or none where the address allows that.
func serveToken(given string, none bool, addr string) (string, error) {
	switch {
	case none && given != "":
		return "", errors.New("--token and --no-token exclude each other: give one of them")
	case none && !strings.HasPrefix(addr, "unix:"):
		return "", fmt.Errorf("--no-token with %s: every user of this machine could read prompts; use --listen unix:PATH, or leave --no-token out", addr)
	case none:
		return "", nil
	case given == "":
		return server.NewToken(), nil
	}
	token, err := readToken(given)
	if err != nil {
		return "", err
	}
	return token, server.CheckToken(token)
}

// readToken reads a token that is given as @FILE.
func readToken(text string) (string, error) {
	name, ok := strings.CutPrefix(text, "@")
	if !ok {
		return text, nil
	}
	token, err := bounded.ReadFile(name, bounded.Config)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if text = strings.TrimSpace(string(token)); text == "" || strings.ContainsAny(text, " \n") {
		return "", fmt.Errorf("%s holds no token: one word on a line belongs there", cmp.Or(name, "that file"))
	}
	return text, nil
}
