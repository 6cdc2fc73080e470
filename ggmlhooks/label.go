package ggmlhooks

import "github.com/llamatap/llamatap/store/label"

// The labels of nodes and token rows. They are defined where files store them.
type (
	Phase        = label.Phase        // what an execution or a token row was for
	Component    = label.Component    // the part of a layer that a node computes for
	RowKind      = label.RowKind      // what the rows of a node correspond to
	Row          = label.Row          // one token of a micro-batch
	RequestCause = label.RequestCause // the evidence that a request begins
	RequestBegin = label.RequestBegin // the start of a request in a sequence
)

// The values of the labels.
const (
	NoLayer            = label.NoLayer
	RowsNone           = label.RowsNone
	RowsTokens         = label.RowsTokens
	RowsOutputs        = label.RowsOutputs
	ComponentOther     = label.ComponentOther
	ComponentInput     = label.ComponentInput
	ComponentAttention = label.ComponentAttention
	ComponentMLP       = label.ComponentMLP
	ComponentSSM       = label.ComponentSSM
	ComponentResidual  = label.ComponentResidual
	ComponentOutput    = label.ComponentOutput
	ComponentCache     = label.ComponentCache
	PhaseUnknown       = label.PhaseUnknown
	PhaseSetup         = label.PhaseSetup
	PhaseMaintenance   = label.PhaseMaintenance
	PhasePrefill       = label.PhasePrefill
	PhaseDecode        = label.PhaseDecode
	PhaseTeardown      = label.PhaseTeardown
	RequestFirst       = label.RequestFirst
	RequestSampler     = label.RequestSampler
	RequestMemory      = label.RequestMemory
	RequestPrompt      = label.RequestPrompt
	RequestNone        = label.RequestNone
	RequestUnknown     = label.RequestUnknown
)
