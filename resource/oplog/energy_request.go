package oplog

import (
	"cmp"
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// owner is a request of a sequence, in one phase. Rows without one have seq and request -1.
type owner struct {
	ctx          uint32
	seq, request int32
	phase        ggmlhooks.Phase
}

// owned is what is known of an owner but for energy.
type owned struct {
	tokens int64
	late   float64 // time of executions that were recorded when their windows were divided, by rows
}

// ownerEnergy is what a domain used for an owner, and the time by rows of which that is not known.
type ownerEnergy struct{ joules, uncovered float64 }

// rowsOf is an owner's share of an execution's rows.
type rowsOf struct {
	owner owner
	share float64
}

// maxOwners bounds the owners that are known apart. The energy of later ones is that of rows without one.
const maxOwners = 1 << 17

// rowShares returns the shares of an execution's rows.
func (e *energy) rowShares(x *execution) (all []rowsOf) {
	if e.owners == nil {
		e.owners = map[owner]*owned{}
	}
	for i := range x.Rows {
		row := &x.Rows[i]
		o := owner{x.Ctx, -1, -1, ggmlhooks.PhasePrefill}
		if row.Phase == ggmlhooks.PhaseDecode {
			o.phase = row.Phase
		}
		if len(row.Seqs) > 0 && row.Request >= 0 {
			o.seq, o.request = row.Seqs[0], row.Request
		}
		if e.owners[o] == nil && len(e.owners) >= maxOwners {
			o.seq, o.request = -1, -1
		}
		if e.owners[o] == nil {
			e.owners[o] = &owned{}
		}
		if !x.Failed() {
			e.owners[o].tokens++
		}
		at := slices.IndexFunc(all, func(of rowsOf) bool { return of.owner == o })
		if at < 0 {
			at, all = len(all), append(all, rowsOf{o, 0})
		}
		all[at].share += 1 / float64(len(x.Rows))
	}
	return all
}

// apportion divides what executions used in a window among the owners of their rows.
func (d *domain) apportion(w *energyWindow, spans []ownedSpan) {
	for i := range spans {
		s := &spans[i]
		for _, of := range s.rows {
			use := d.owners[of.owner]
			if use == nil {
				use = &ownerEnergy{}
				d.owners[of.owner] = use
			}
			if w.source == "" {
				use.uncovered += s.ns * of.share
			} else {
				use.joules += w.joules * s.ns / float64(w.end-w.start) * of.share
			}
		}
		if s.of != nil {
			s.of.addWindow(d.number, w, s.ns)
		}
	}
}

// requests are what each domain used for each request, after rows.
func (e *energy) requests() (requestEnergies []resource.RequestEnergy) {
	for _, d := range e.domains {
		if d.source == "" {
			continue
		}
		first := len(requestEnergies)
		for o, of := range e.owners {
			use := d.owners[o]
			if use == nil {
				use = &ownerEnergy{}
			}
			r := resource.RequestEnergy{Domain: d.name, Phase: o.phase.String(), ApportionedJ: use.joules,
				EnergySource: d.source, Tokens: of.tokens, UncoveredNS: int64(math.Round(use.uncovered + of.late))}
			r.Ctx = &o.ctx
			if o.request >= 0 {
				r.SeqID, r.Request = &o.seq, &o.request
			}
			requestEnergies = append(requestEnergies, r)
		}
		slices.SortFunc(requestEnergies[first:], func(a, b resource.RequestEnergy) int {
			number := func(v *int32) int32 {
				if v == nil {
					return -1
				}
				return *v
			}
			return cmp.Or(cmp.Compare(*a.Ctx, *b.Ctx), cmp.Compare(number(a.SeqID), number(b.SeqID)),
				cmp.Compare(number(a.Request), number(b.Request)), cmp.Compare(b.Phase, a.Phase))
		})
	}
	return requestEnergies
}
