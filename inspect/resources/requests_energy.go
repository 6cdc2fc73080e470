package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
)

// EnergyColumn is the energy of a request where requests are written as CSV or JSON: of all devices, and apportioned.
const EnergyColumn = "apportioned_energy_j"

// DeviceEnergy is what a device used over a run. CounterJ is what its counter says, and the sum of the others.
type DeviceEnergy struct {
	Domain    string  `json:"domain"` // gpu-0, package-0, package-0/dram
	CounterJ  float64 `json:"counter_j"`
	RequestsJ float64 `json:"apportioned_j"` // to the requests of the table
	OtherJ    float64 `json:"other_j"`       // in other executions, such as the set-up and those of a draft model
	IdleJ     float64 `json:"idle_j"`        // outside of executions
	// PromptTokenJ and TokenJ are RequestsJ per computed token of a prompt and per generated one that was computed
	// on; absent where a part of their time has no energy.
	PromptTokenJ *float64 `json:"joules_per_prompt_token,omitempty"`
	TokenJ       *float64 `json:"joules_per_token,omitempty"`
}

// RequestShare is what a device used for a phase of a request: apportioned, not measured.
type RequestShare struct {
	Domain       string  `json:"domain"`
	Phase        string  `json:"phase"` // prefill, decode
	ApportionedJ float64 `json:"apportioned_j"`
	Tokens       int64   `json:"tokens"` // rows
	// PerTokenJ is that of a row, all alike; absent where a part of their time has no energy.
	PerTokenJ *float64 `json:"joules_per_token,omitempty"`
	Unknown   bool     `json:"-"` // a part of its time has no energy
}

func (s *RequestShare) perToken() *float64 {
	if s.Unknown {
		return nil
	}
	return ratio(s.ApportionedJ, float64(s.Tokens))
}

type requestKey struct{ ctx, seq, number int64 }

// ReadEnergy reads what the log of events says at its end; there need not be one.
func (r *Requests) ReadEnergy(ctx context.Context, dir string) error {
	r.shares = map[requestKey][]RequestShare{}
	err := EachEvent(ctx, dir, func(kind resource.Kind, text []byte) error {
		switch kind {
		case resource.KindEnergy:
			var e resource.Energy
			if json.Unmarshal(text, &e) == nil && e.EnergyJ != nil {
				d := r.device(e.Domain)
				if d.CounterJ += *e.EnergyJ; e.Phase == "outside" {
					d.IdleJ += *e.EnergyJ
				} else {
					d.OtherJ += *e.EnergyJ
				}
			}
		case resource.KindRequestEnergy:
			var e resource.RequestEnergy
			if json.Unmarshal(text, &e) == nil && e.Ctx != nil && e.SeqID != nil && e.Request != nil {
				key := requestKey{int64(*e.Ctx), int64(*e.SeqID), int64(*e.Request)}
				share := RequestShare{e.Domain, e.Phase, e.ApportionedJ, e.Tokens, nil, e.UncoveredNS > 0}
				share.PerTokenJ = share.perToken()
				r.shares[key] = append(r.shares[key], share)
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrNoLog):
		return nil
	case err != nil:
		return err
	}
	r.sumEnergy()
	return nil
}

func (r *Requests) device(name string) *DeviceEnergy {
	i := slices.IndexFunc(r.Energy, func(d DeviceEnergy) bool { return d.Domain == name })
	if i < 0 {
		i, r.Energy = len(r.Energy), append(r.Energy, DeviceEnergy{Domain: name})
	}
	return &r.Energy[i]
}

// sumEnergy takes what the requests of the table have from what executions used.
func (r *Requests) sumEnergy() {
	sums := map[[2]string]RequestShare{}
	for i := range r.All {
		for _, s := range r.Shares(&r.All[i]) {
			d := r.device(s.Domain)
			d.RequestsJ += s.ApportionedJ
			d.OtherJ -= s.ApportionedJ
			of := sums[[2]string{s.Domain, s.Phase}]
			sums[[2]string{s.Domain, s.Phase}] = RequestShare{ApportionedJ: of.ApportionedJ + s.ApportionedJ,
				Tokens: of.Tokens + s.Tokens, Unknown: of.Unknown || s.Unknown}
		}
	}
	for i := range r.Energy { // what is left of sums that cancel out
		d := &r.Energy[i]
		if d.OtherJ < 1e-9*d.CounterJ {
			d.OtherJ = max(d.OtherJ, 0)
		}
		prompt, token := sums[[2]string{d.Domain, phasePrefill}], sums[[2]string{d.Domain, phaseDecode}]
		d.PromptTokenJ, d.TokenJ = prompt.perToken(), token.perToken()
	}
}

// Shares are what devices used for a request, by device and phase.
func (r *Requests) Shares(q *kvcache.Request) []RequestShare {
	return r.shares[requestKey{q.Ctx, q.Seq, q.Number}]
}

// joules is what all devices used for a request, nil where that is not known.
func (r *Requests) joules(q *kvcache.Request) any {
	sum, shares := 0.0, r.Shares(q)
	for _, s := range shares {
		if s.Unknown {
			return nil
		}
		sum += s.ApportionedJ
	}
	if len(shares) == 0 {
		return nil
	}
	return sum
}

// energyCells are a request's energy, and that of each generated token.
func (r *Requests) energyCells(q *kvcache.Request) []string {
	joules := r.joules(q)
	if joules == nil {
		return []string{"", ""}
	}
	decode, tokens := 0.0, int64(0)
	for _, s := range r.Shares(q) {
		if s.Phase == phaseDecode {
			decode += s.ApportionedJ
			tokens = max(tokens, s.Tokens)
		}
	}
	perToken := ""
	if tokens > 0 {
		perToken = fmt.Sprintf("%.3g", decode/float64(tokens))
	}
	return []string{fmt.Sprintf("%.4g J", joules), perToken}
}
