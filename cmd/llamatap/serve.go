package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/inspect/otlp"
	runreport "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/object"
	"github.com/llamatap/llamatap/store/rundir"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Max: 1,
		Summary: "show runs in a browser and over HTTP: live views, summaries, metrics for Prometheus",
		Usage:   "DIR|--live|--host NAME=HOST:PORT [--listen HOST:PORT|unix:PATH] [--token @FILE]",
		Text: `Shows the resource events of a run directory, or of the runs in a folder, as they are recorded, and
what they sum up to: in a browser, at the printed address, as a page of the runs with a live view of each, and

  GET /api/v1/resource-logs    events, a line of JSON each; parameters run, from_line, follow, event, layer
  GET /api/v1/summary, /kv     as 'llamatap resource summary' and 'llamatap kv'
  PUT /api/v1/level            {"level": "VERBOSE"} for a live run; also {"command": "enable"}, "disable", "flush"
  POST /log-monitoring         {"prompt": "…", "stream": true} runs a prompt and records it below DIR; -m gives the model
  GET /api/v1/live             what 'llamatap top --json' prints, as server-sent events
  GET /api/v1/runs, /metrics, /healthz, and the routes of LRI: /sessions, /logs/ID, /logs/ID/stream

docs/SERVE.md describes them, and has a dashboard for Grafana. --live shows only the newest live run below DIR; DIR is
then ./llamatap-runs if it is not given. INT or TERM ends the server, and the streams that it has.

Events hold prompts, so every request but /healthz needs a token: one is generated at each start, printed with the
address as a link that a browser opens, and kept in a file that you alone can read, which 'llamatap ctl' finds. A
client sends it as "Authorization: Bearer TOKEN". --token @FILE gives a lasting one, for Prometheus. A Unix socket
needs none with --no-token.

--host NAME=HOST:PORT shows the runs of another host's 'llamatap serve' as well, live ones included, as NAME:RUN.

DIR may be the URL of a run, or of a folder of runs, in object storage: sealed ones are shown, and copied into the
user's cache when one is looked at.

  llamatap serve llamatap-runs
  llamatap serve --host gpu-1=10.0.0.1:9464 --host gpu-2=10.0.0.2:9464 --host-token @fleet.token
  llamatap ctl http://127.0.0.1:8080 level VERBOSE
  llamatap serve llamatap-runs --listen unix:serve.sock --no-token
  curl -N --unix-socket serve.sock 'http://localhost/api/v1/resource-logs?follow&event=output_token'
`,
		Define: func(f *cli.Flags) func([]string) error {
			o := server.Options{Control: controlRun,
				Report: func(ctx context.Context, dir string, out io.Writer) error {
					run, err := runreport.Read(ctx, dir, nil)
					if err != nil {
						return err
					}
					return runreport.WriteHTML(ctx, out, run)
				}}
			addr, token, model, collector, hostToken := "127.0.0.1:8080", "", "", "", ""
			f.Add("--live", &o.Live, "show the newest live run, and no other")
			f.Add("--listen ADDRESS", &addr, "listen on HOST:PORT, where port 0 takes a free one, or on unix:PATH").
				Deprecated("--addr")
			f.Add("--token TOKEN", &token, "demand this token instead of a generated one; @FILE reads it from a file")
			f.Add("--no-token", &o.NoToken, "demand no token of clients of a Unix socket, which its mode 0600 guards")
			f.Add("-m, --model FILE", &model,
				"GGUF file that prompts of POST /log-monitoring are run with (default: the embedded model)")
			f.Add("--otlp URL", &collector,
				"export the requests of live runs that do not export them themselves to the OpenTelemetry collector "+
					"at this URL, about 30 s after they ended; off: nowhere (default: as the variables "+
					"OTEL_EXPORTER_OTLP_… say)")
			f.Add("--host NAME=ADDRESS",
				func(text string) error {
					h, err := server.ParseHost(text)
					o.Hosts = append(o.Hosts, h)
					return err
				},
				"show the runs of the 'llamatap serve' at this HOST:PORT or https://HOST:PORT as well; may be given "+
					"several times")
			f.Add("--host-token TOKEN", &hostToken, "token of these servers; @FILE reads it from a file")
			f.Add("--cors-origin ORIGIN",
				func(origin string) error { o.Origins = append(o.Origins, origin); return server.CheckOrigin(origin) },
				"let web pages of this origin, such as http://localhost:3000, ask with the token; may be given "+
					"several times")
			return func(args []string) (err error) {
				if o.Dir = strings.Join(args, ""); o.Dir == "" && o.Live {
					o.Dir = rundir.Folder
				} else if o.Dir == "" && len(o.Hosts) == 0 {
					return cli.Wrongf("no run directory: give one, or a folder of runs, as in 'llamatap serve %s'",
						rundir.Folder)
				}
				if object.Is(o.Dir) && o.Live {
					return cli.Wrongf("--live: there are no live runs in object storage: leave it out")
				}
				if object.Is(o.Dir) {
					if o.Stored, err = newStoredRuns(o.Dir); err != nil {
						return err
					}
				}
				if o.Token, err = serveToken(token, o.NoToken, addr); err != nil {
					return cli.Wrong(err)
				}
				if err = shareToken(o.Hosts, hostToken); err != nil {
					return cli.Wrong(err)
				}
				to, err := otlp.Lookup("--otlp", collector, nil)
				if err != nil {
					return cli.Wrong(err)
				}
				if to != nil {
					o.Export = otlp.Options{Settings: *to, Version: version,
						Remark: func(text string) { fmt.Fprintln(present.Err, "llamatap: OpenTelemetry:", text) }}
				}
				if err := prepareServing(&o, model); err != nil {
					return err
				}
				return serve(o, addr)
			}
		},
	}
}

// serve serves until it is interrupted.
func serve(o server.Options, addr string) error {
	s, err := server.New(o)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends it at once
	listener, err := server.Listen(addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	what := cmp.Or(o.Dir, "nothing of this host")
	if o.Live {
		what = "the newest live run below " + o.Dir
	}
	for _, h := range o.Hosts {
		what += ", " + h.Name + " (" + h.URL.Host + ")"
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
	fmt.Fprintf(present.Err, "llamatap: %s is shown at %s%s\n", what, link.String(), note)
	return s.Serve(ctx, listener)
}

// serveToken returns the token that clients must send: the given one, a new one, or none where the address allows that.
func serveToken(given string, none bool, addr string) (string, error) {
	switch {
	case none && given != "":
		return "", errors.New("--token and --no-token exclude each other: give one of them")
	case none && !strings.HasPrefix(addr, "unix:"):
		return "", fmt.Errorf(
			"--no-token with %s: every user of this machine could read prompts; use --listen unix:PATH, or leave "+
				"--no-token out", addr)
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

// shareToken gives the servers of other hosts their token.
func shareToken(hosts []server.Host, given string) error {
	if len(hosts) == 0 && given != "" {
		return errors.New("--host-token without --host: name a server with --host NAME=HOST:PORT")
	}
	token, err := readToken(given)
	for i := range hosts {
		hosts[i].Token = token
	}
	return err
}

// readToken reads a token that is given as @FILE.
func readToken(text string) (string, error) {
	name, ok := strings.CutPrefix(text, "@")
	if !ok {
		return text, nil
	}
	token, err := cli.ReadFile(name, cli.MaxConfig)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if text = strings.TrimSpace(string(token)); text == "" || strings.ContainsAny(text, " \n") {
		return "", fmt.Errorf("%s holds no token: write one word on a line", cmp.Or(name, "that file"))
	}
	return text, nil
}
