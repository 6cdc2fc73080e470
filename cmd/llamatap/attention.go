package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/llamatap/llamatap/inspect/tensors"
)

// attentionArgs are the arguments of 'llamatap inspect --attention'.
type attentionArgs struct {
	want             bool
	head, token, ctx string
	npy, json        bool
	out              string
}

// options turns the flags into the choice of a map.
func (a *attentionArgs) options(layer *int) (o tensors.MapOptions, err error) {
	if layer == nil || *layer < 0 || a.head == "" {
		return o, errors.New("--attention shows one head of one layer: give --layer N and --head H")
	}
	o.Layer = *layer
	if o.Head, err = strconv.Atoi(a.head); err != nil || o.Head < 0 {
		return o, fmt.Errorf("--head %q: give the number of a head, from 0", a.head)
	}
	if a.json && a.npy {
		return o, errors.New("--json and --npy contradict each other: drop one")
	}
	ctx, err := parseCtx(a.ctx)
	if err != nil {
		return o, err
	}
	if ctx != nil {
		o.Ctx = *ctx
	}
	o.First, o.End, err = parseTokens(a.token)
	return o, err
}

// write writes the map to its place.
func (a *attentionArgs) write(run *tensors.Run, o tensors.MapOptions) error {
	return writeTo(a.out, a.npy, func(out io.Writer) error {
		switch {
		case a.json:
			return run.WriteMapJSON(out, o)
		case a.npy:
			return run.WriteMapNPY(out, o)
		}
		return run.WriteMapText(out, o)
	})
}
