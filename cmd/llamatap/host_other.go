//go:build !linux

package main

import "github.com/llamatap/llamatap/runner/doctor"

func runHostCollector(hostOptions) error { return errNotHere }

func runHostAgent(agentOptions) error { return errNotHere }

func tryHost() []doctor.HostCollector { return nil }
