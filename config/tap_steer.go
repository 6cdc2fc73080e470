package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

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

// ParseSteer reads FILE[:SCALE][:LAYERS].
func ParseSteer(text string) (Steer, error) {
	s := Steer{File: text, Scale: 1}
	if rest, last, ok := cutLast(s.File); ok && strings.ContainsAny(last, "0123456789") {
		if _, err := strconv.ParseFloat(last, 64); err != nil || isNumber(rest) {
			if s.Layers, err = ggmlhooks.ParseLayerSet(last); err != nil {
				return s, fmt.Errorf("vector %q: write FILE[:SCALE][:LAYERS], such as code.gguf:0.5:3-5", text)
			}
			s.File = rest
		}
	}
	if rest, last, ok := cutLast(s.File); ok {
		if scale, err := strconv.ParseFloat(last, 64); err == nil {
			s.File, s.Scale = rest, scale
		}
	}
	if s.File == "" || math.IsNaN(s.Scale) || math.Abs(s.Scale) > math.MaxFloat32 {
		return s, fmt.Errorf("vector %q: write FILE[:SCALE][:LAYERS] with a finite scale, such as code.gguf:0.5:3-5", text)
	}
	return s, nil
}

func cutLast(s string) (rest, last string, ok bool) {
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+1:], true
}

// isNumber reports whether the last part of a text is a number.
func isNumber(s string) bool {
	_, last, ok := cutLast(s)
	_, err := strconv.ParseFloat(last, 64)
	return ok && err == nil
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
		help: "add a control vector to the residual stream, and record when; 'llamatap ctl RUNDIR steer' exchanges it while the program runs. armed adds none yet",
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
		}}}
}
