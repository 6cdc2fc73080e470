package llama

import (
	"os"
	"testing"
)

// Only a build that is packed up heeds its launcher's variable, and it hands it on to nobody.
func TestHome(t *testing.T) {
	t.Setenv(homeVariable, "/elsewhere")
	if got := takeHome(""); got != "" || os.Getenv(homeVariable) == "" {
		t.Errorf("a build that stays took %q", got)
	}
	if got := takeHome("/build"); got != "/elsewhere" || os.Getenv(homeVariable) != "" {
		t.Errorf("a build that moves took %q", got)
	}
	t.Setenv(homeVariable, "relative")
	if got := takeHome("/build"); got != "" {
		t.Errorf("a relative folder was taken: %q", got)
	}
}

func TestRelocated(t *testing.T) {
	for _, c := range []struct{ home, root, paths, want string }{
		{"", "/build", "/build/lib", "/build/lib"},
		{"/opt/x", "", "/usr/lib", "/usr/lib"},
		{"/opt/x", "/build", "/build/lib:/usr/lib:/build/glibc", "/opt/x/lib:/usr/lib:/opt/x/glibc"},
		{"/opt/x", "/build", "", ""},
		{"/opt/x", "/build", "/builder/lib:/build", "/builder/lib:/opt/x"},
	} {
		if got := relocated(c.home, c.root, c.paths); got != c.want {
			t.Errorf("%q from %q to %q: %q, want %q", c.paths, c.root, c.home, got, c.want)
		}
	}
}
