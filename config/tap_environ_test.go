package config

import "testing"

// TestEnvironment holds that a misspelt variable is reported, and that those which are no settings are left alone.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		variable string
		want     string // what the error names; "": no error
	}{
		{"LLAMATAP_TENSR=l_out*", "LLAMATAP_TENSR | LLAMATAP_TENSOR"},
		{"LLAMATAP_LAYR=3", "LLAMATAP_LAYR | LLAMATAP_LAYER"},
		{"LLAMATAP_LAYER=3", ""},
		{"LLAMATAP_LAYERS=3", ""},
		{"LLAMATAP_PRESETT=max", "LLAMATAP_PRESETT | LLAMATAP_PRESET"},
		{"LLAMATAP_TENSR=", ""},
		{"LLAMATAP_TENSORS=l_out*", ""},
		{"LLAMATAP_DEBIAN_MIRROR=http://localhost", ""},
		{"LLAMATAP_NIGHTLY=1", ""},
		{"LLAMATAP_CI=1", ""},
		{"LLAMATAP_HOME=/", ""},
		{"LLAMATAP_TAP_FD=3", ""},
		{"LLAMATAP_TEST_SELF=1", ""},
		{"LLAMATAP_TEST_MODEL=m", ""},
		{"LLAMATAP_TEST_ALONE=1", ""},
		{"LLAMATAP_MUTANTS=500", ""},
		{"LLAMATAP_MUTANT_FIRST=1", ""},
		{"LLAMATAP_BENCH_LOAD=1", ""},
		{"LLAMATAP_DOCTOR_QUESTION=devices", ""},
		{"LAYERS=3", ""},
	} {
		err := new(Tap).Resolve(ResolveOptions{
			LookupEnv: func(string) (string, bool) { return "", false },
			Environ:   func() []string { return []string{"PATH=/bin", c.variable} },
		})
		if c.want == "" && err != nil || c.want != "" && !namesAll(err, c.want) {
			t.Errorf("%s: got %v, want an error that names %q", c.variable, err, c.want)
		}
	}
}

// TestFormerEnvironment: variables are named as the flags are; a former name counts where the present one is not set.
func TestFormerEnvironment(t *testing.T) {
	for _, c := range []struct {
		env         map[string]string
		want, where string
	}{
		{map[string]string{"LLAMATAP_LAYER": "3"}, "3", "LLAMATAP_LAYER"},
		{map[string]string{"LLAMATAP_LAYERS": "4"}, "4", "LLAMATAP_LAYERS"},
		{map[string]string{"LLAMATAP_LAYERS": "4", "LLAMATAP_LAYER": "3"}, "3", "LLAMATAP_LAYER"},
		{map[string]string{"LLAMATAP_LAYERS": "4", "LLAMATAP_LAYER": ""}, "4", "LLAMATAP_LAYERS"},
	} {
		got := mustResolve(t, world{env: c.env}).Echo().Settings["layers"]
		if got.Value != c.want || got.Where != c.where {
			t.Errorf("%v: %+v", c.env, got)
		}
	}
}
