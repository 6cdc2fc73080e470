package capture

import (
	"encoding/json"
	"testing"
)

func TestPaths(t *testing.T) {
	p := paths{}
	for layer := range int32(4) {
		name := "Qcur-" + string('0'+layer)
		p.add(name, layer, layer > 1)
		p.add(name+"#2", layer, false)
	}
	p.add("result_norm", -1, true)
	text, err := json.Marshal(p.list())
	want := `[{"tensor":"Qcur","whole_graph":2,"cut_graph":2,"cut_layers":"2-3"},` +
		`{"tensor":"Qcur#2","whole_graph":4,"cut_graph":0},{"tensor":"result_norm","whole_graph":0,"cut_graph":1}]`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, not\n%s", text, err, want)
	}
}
