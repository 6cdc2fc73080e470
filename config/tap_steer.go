package config

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// steerArmed is the value of --tap-steer that adds no vector, so that one can be added later.
const steerArmed = "armed"

// Steer is a control vector that is added to the residual stream, scaled.
type Steer struct {
	File   string // "": none
	Scale  float64
	Layers ggmlhooks.LayerSet // empty: all that the file has directions for
}

// steerForm is FILE[:SCALE][:LAYERS]; a lone number is a scale.
var steerForm = regexp.MustCompile(`^(.+?)(?::([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?))?(?::([0-9][0-9,-]*))?$`)

// ParseSteer reads FILE[:SCALE][:LAYERS].
func ParseSteer(text string) (s Steer, err error) {
	parts := steerForm.FindStringSubmatch(text)
	if parts == nil {
		return s, fmt.Errorf("vector %q: write FILE[:SCALE][:LAYERS], such as code.gguf:0.5:3-5", text)
	}
	s.Scale, err = strconv.ParseFloat(cmp.Or(parts[2], "1"), 64)
	if err != nil || math.Abs(s.Scale) > math.MaxFloat32 {
		return s, fmt.Errorf("vector %q: scale %s is out of range: write a number such as 0.5", text, parts[2])
	}
	if s.File = parts[1]; parts[3] != "" {
		s.Layers, err = ggmlhooks.ParseLayerSet(parts[3])
	}
	return s, err
}

// String is what ParseSteer reads.
func (s Steer) String() string {
	text := s.File + ":" + strconv.FormatFloat(s.Scale, 'g', -1, 64)
	if !s.Layers.Empty() {
		text += ":" + s.Layers.String()
	}
	return text
}

func steerOptions() []option {
	return []option{{name: "steer", form: "FILE[:SCALE][:LAYERS]|armed", recorder: Steering,
		help: "add a control vector to the residual stream, and record when; 'llamatap ctl RUNDIR steer' exchanges " +
			"it while the program runs. armed adds none yet",
		field: field{
			set: func(t *Tap, s string) (err error) {
				if t.Steer = (Steer{}); s != steerArmed {
					t.Steer, err = ParseSteer(s)
				}
				return err
			},
			get: func(t *Tap) any {
				switch {
				case t.Steer.File != "":
					return t.Steer.String()
				case t.Records(Steering):
					return steerArmed
				}
				return nil
			}}}}
}
