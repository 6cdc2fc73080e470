package resources

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
)

// expertParts are the matrices of a layer's experts, in the order in which llama.cpp caches them.
var expertParts = []string{"gate_up", "gate", "up", "down"}

// readModel takes the sizes of experts from the model's file. A file that was named by a flag has to be there.
func (r *Experts) readModel(path string, o *ExpertOptions) error {
	was := modelOf(path, r.Ctx)
	name := cmp.Or(o.Model, was.Path)
	if name == "" {
		r.NoModel = "the run does not name its model's file: give it with --model"
		return nil
	}
	err := r.readFile(name, &was)
	if err != nil && o.Model == "" {
		r.NoModel = fmt.Sprintf("%v: give the model's file with --model", err)
		return nil
	}
	if err != nil {
		return err
	}
	r.Model = name
	for _, l := range r.cached(o) {
		r.Bytes += l.ExpertBytes * int64(l.Experts)
	}
	return nil
}

// modelOf is what a run's metadata say of a context's model, as far as they do.
func modelOf(path string, ctx uint32) rundir.Model {
	m, err := rundir.ReadMetadata(path)
	if err != nil {
		return rundir.Model{}
	}
	for i := range m.Contexts {
		if c := &m.Contexts[i]; c.Ctx == ctx && c.Model.Path != "" {
			return c.Model
		}
	}
	return m.Model
}

// anotherModel says how files are not those of a model, by its size and its name; "" where they may be.
func anotherModel(files []*gguf.File, was *rundir.Model) string {
	size := int64(0)
	for _, f := range files {
		size += f.TensorBytes()
	}
	name, _ := files[0].Metadata.Text("general.name")
	switch {
	case was.SizeBytes > 0 && size != was.SizeBytes:
		return fmt.Sprintf("its tensors have %d bytes, and those of the run's model had %d", size, was.SizeBytes)
	case was.Name != "" && name != "" && name != was.Name:
		return fmt.Sprintf("it is called %q, and the run's model %q", name, was.Name)
	}
	return ""
}

// readFile reads a model, of which there may be more files.
func (r *Experts) readFile(name string, was *rundir.Model) error {
	var files []*gguf.File
	names := []string{name}
	if base, rest, split := strings.Cut(name, "-00001-of-"); split {
		count := 0
		if _, err := fmt.Sscanf(rest, "%05d.gguf", &count); err == nil {
			for i := 2; i <= count; i++ {
				names = append(names, fmt.Sprintf("%s-%05d-of-%s", base, i, rest))
			}
		}
	}
	for _, name := range names {
		f, err := gguf.Open(name)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	for _, l := range r.Layers {
		for _, part := range expertParts {
			for _, f := range files {
				if t, ok := f.Tensor(fmt.Sprintf("blk.%d.ffn_%s_exps.weight", l.Layer, part)); ok {
					l.add(part, t)
				}
			}
		}
		if l.Experts == 0 || len(l.Chosen) > l.Experts {
			err := fmt.Errorf("%s is not the model of this run: layer %d has %d experts in it, and expert %d was "+
				"chosen",
				name, l.Layer, l.Experts, len(l.Chosen)-1)
			for _, l := range r.Layers {
				l.Experts, l.ExpertBytes, l.strides, l.layout = 0, 0, nil, ""
			}
			return err
		}
	}
	r.Another = anotherModel(files, was)
	return nil
}

// add adds a matrix, of all experts of the layer.
func (l *ExpertLayer) add(part string, t *gguf.Tensor) {
	l.Experts = 1
	if len(t.Shape) > 2 {
		l.Experts = int(t.Shape[2])
	}
	stride := t.Bytes / int64(l.Experts)
	l.strides = append(l.strides, stride)
	l.ExpertBytes += stride
	l.layout += fmt.Sprint(part, t.Type, t.Shape, " ")
}

// cached are the layers whose experts stay in host memory.
func (r *Experts) cached(o *ExpertOptions) []*ExpertLayer {
	n := len(r.Layers)
	for o.Layers > 0 && n > 0 && r.Layers[n-1].Layer >= o.Layers {
		n--
	}
	return r.Layers[:n]
}
