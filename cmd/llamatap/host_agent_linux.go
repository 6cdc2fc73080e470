package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/runner/session"
)

// runHostAgent starts a program and answers runs on other hosts until it ends.
func runHostAgent(o agentOptions) error {
	warn := func(err error) { fmt.Fprintf(present.Err, "llamatap: agent: %v\n", err) }
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	var sources []bpf.Source
	var collectors []bpf.Collector
	for _, opened := range session.OpenCollectors(o.collectors, session.CollectorOptions{
		Interval: time.Second, Target: bpf.Target{Later: true}, Run: "run" + strconv.Itoa(os.Getpid()),
	}) {
		if opened.Err != nil {
			warn(fmt.Errorf("%s is left out: %w", opened.Name, opened.Err))
			continue
		}
		for _, missing := range opened.Missing {
			warn(errors.New(missing))
		}
		sources = append(sources, bpf.Source{Name: opened.Name, Collector: opened.Collector})
		collectors = append(collectors, opened.Collector)
	}
	agent := process.NewAgent(o.token, time.Second, warn, sources...)
	ctx, stop := signal.NotifyContext(context.Background(), enders(true)...)
	defer stop()
	ctx, status, err := startWatched(ctx, o.program, collectors...)
	if err != nil {
		return errors.Join(err, agent.Close())
	}
	fmt.Fprintf(present.Err, "llamatap: agent: listening on %s\n", listener.Addr())
	if err := agent.Serve(ctx, listener); err != nil {
		warn(err)
	}
	return status()
}
