package table

// words are the texts of a column of a batch, by code.
type words struct {
	codes map[string]int32
	list  []string
	last  int32 // the code that was asked for last, if there are any
	kept  int   // so many have been told to the batch's owner
	epoch int   // counts how often others were forgotten
}

// maxWords is how many texts a batch keeps for the next rows.
const maxWords = 1 << 16

// code is the code of a text.
func (w *words) code(v string) int32 {
	if len(w.list) > 0 && w.list[w.last] == v {
		return w.last
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
	w.last = code
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
	w.list, w.last = w.list[:w.kept], 0
	w.epoch++
}
