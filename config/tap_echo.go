package config

import "reflect"

// Echo is a resolved Tap as metadata.json shows it.
type Echo struct {
	Recorders []Recorder         `json:"recorders"`
	Settings  map[string]Setting `json:"settings"` // by YAML key; a setting without value and default is left out
	// MemoryCeiling in bytes is what the preset allows for memory; absent without a preset.
	MemoryCeiling Bytes  `json:"memory_ceiling,omitempty"`
	Reason        string `json:"reason,omitempty"` // what a purpose chose, and why
}

// Setting is one value and where it came from.
type Setting struct {
	Value  any    `json:"value"`
	Source string `json:"source"` // default, preset, file, environment or flag
	// --tap-codec, LLAMATAP_CODEC, tap.yaml:3:5, preset balanced; absent for a default
	Where string `json:"where,omitempty"`
}

// Echo returns every setting that has a value, with its source. It is empty of recorders when nothing is recorded.
func (t *Tap) Echo() Echo {
	e := Echo{
		Recorders:     append([]Recorder{}, t.recorders...),
		Settings:      make(map[string]Setting),
		MemoryCeiling: t.MemoryCeiling,
		Reason:        t.Reason,
	}
	for i := range tapOptions {
		o := &tapOptions[i]
		value := o.get(t)
		if value == "" { // a list that names nothing
			value = o.byDef
		}
		if value == nil || o.byDef == "" && reflect.ValueOf(value).IsZero() {
			continue
		}
		s := Setting{Value: value, Source: t.origins[o.name].source.String()}
		if t.origins[o.name].source != FromDefault {
			s.Where = t.origins[o.name].where
		}
		e.Settings[o.key()] = s
	}
	return e
}
