package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/inspect/server"
)

const serveHelp = `llamatap serve: show runs over HTTP

usage: llamatap serve DIR|--live [--addr HOST:PORT] [--token TOKEN|@FILE]

Shows the resource events of a run directory, or of the runs in a folder, as they are recorded, and what they sum up to:

  GET /api/v1/resource-logs    events, a line of JSON each; parameters run, from_line, follow, event, layer
  GET /api/v1/summary, /kv     what 'llamatap resource summary' says; KV caches
  PUT /api/v1/level            {"level": "VERBOSE"} for a run that goes on; also {"command": "enable"}, "disable", "flush"
  GET /api/v1/runs, /metrics, /healthz, and the routes of system B: /sessions, /logs/ID, /logs/ID/stream

docs/SERVE.md tells more, and has a dashboard for Grafana. With --live only the newest run that goes on below DIR is shown; DIR is
then ./llamatap-runs if it is not given. Files are only read. INT or TERM ends the server, and the streams that it has.

The server listens on this machine alone unless --addr names another address, which needs a token: events hold prompts. A client
sends it as "Authorization: Bearer TOKEN". @FILE reads it from a file, so that it is not in the list of processes.

  llamatap serve llamatap-runs
  curl -N '127.0.0.1:8080/api/v1/resource-logs?follow&event=output_token'

flags:
`

// defaultRuns is where runs are recorded unless they say otherwise.
const defaultRuns = "llamatap-runs"

// runServe serves until it is interrupted.
func runServe(args []string) error {
	var o server.Options
	flags := newFlags("serve", serveHelp)
	flags.BoolVar(&o.Live, "live", false, "show the newest run that goes on, and no other")
	addr := flags.String("addr", "127.0.0.1:8080", "listen on `HOST:PORT`; port 0 takes a free one")
	token := flags.String("token", "", "demand this `TOKEN` of every request; @FILE reads it from a file")
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
	if o.Token, err = readToken(*token); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	if err := server.CheckAddress(*addr, o.Token); err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	o.Host, _, _ = net.SplitHostPort(*addr)
	o.Control = controlRun
	stepBack()
	s, err := server.New(o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends it at once
	listener, err := net.Listen("tcp", *addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use: give another port, as in --addr 127.0.0.1:0", *addr)
	}
	if err != nil {
		return fmt.Errorf("%w: give another address with --addr", err)
	}
	what := o.Dir
	if o.Live {
		what = "the newest run that goes on below " + o.Dir
	}
	fmt.Fprintf(os.Stderr, "llamatap: %s is shown at http://%v\n", what, listener.Addr())
	return s.Serve(ctx, listener)
}

// readToken reads a token that is given as @FILE.
func readToken(text string) (string, error) {
	name, ok := strings.CutPrefix(text, "@")
	if !ok {
		return text, nil
	}
	token, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if text = strings.TrimSpace(string(token)); text == "" || strings.ContainsAny(text, " \n") {
		return "", fmt.Errorf("%s holds no token: one word on a line belongs there", cmp.Or(name, "that file"))
	}
	return text, nil
}
