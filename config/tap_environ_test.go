package config

import "testing"

// TestEnvironment holds that a misspelt variable is reported, and that those which are no settings are left alone.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct{ variable, want string }{
		{"LLAMATAP_TENSOR=l_out*", "environment variable LLAMATAP_TENSOR: there is no such setting: did you mean LLAMATAP_TENSORS?"},
		{"LLAMATAP_LAYER=3", "environment variable LLAMATAP_LAYER: there is no such setting: did you mean LLAMATAP_LAYERS?"},
		{"LLAMATAP_PRESETT=max", "environment variable LLAMATAP_PRESETT: there is no such setting: did you mean LLAMATAP_PRESET?"},
		{"LLAMATAP_TENSOR=", ""},
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
		{"LLAMATAP_DOCTOR_DEVICES=1", ""},
		{"LAYERS=3", ""},
	} {
		err := new(Tap).Resolve(ResolveOptions{
			LookupEnv: func(string) (string, bool) { return "", false },
			Environ:   func() []string { return []string{"PATH=/bin", c.variable} },
		})
		if got := message(err); got != c.want {
			t.Errorf("%s: got %q, want %q", c.variable, got, c.want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
