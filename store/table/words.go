package table

// words are the texts of a column of a batch, by code.
type words struct {
	codes map[string]int32
	list  []string
	// Those that were asked for last, by some of their bytes: texts come again and again.
	recent [64]recentWord
	kept   int // so many are known to the batch's owner
	epoch  int // counts how often others were forgotten
}

// recentWord is a text whose code is known.
type recentWord struct {
	text  string
	code  int32
	known bool
}

// maxWords is how many texts a batch keeps for the next rows.
const maxWords = 1 << 16

// code is the code of a text.
func (w *words) code(v string) int32 {
	recent := &w.recent[0]
	if n := len(v); n > 0 {
		recent = &w.recent[(n+int(v[0])+int(v[n/2])<<1+int(v[n-1])<<2)%len(w.recent)]
	}
	if recent.known && recent.text == v {
		return recent.code
	}
	code, ok := w.codes[v]
	if !ok {
		if w.codes == nil {
			w.codes = map[string]int32{}
		}
		code = int32(len(w.list))
		w.list = append(w.list, v)
		w.codes[v] = code
	}
	*recent = recentWord{v, code, true}
	return code
}

// forget forgets texts whose codes nobody has, if there are many.
func (w *words) forget() {
	if len(w.list) <= max(maxWords, w.kept) {
		return
	}
	for _, v := range w.list[w.kept:] {
		delete(w.codes, v)
	}
	clear(w.list[w.kept:])
	w.list, w.recent = w.list[:w.kept], [64]recentWord{}
	w.epoch++
}
