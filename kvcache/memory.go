package kvcache

// Memory is the caches of one context. What a program does to sequences it does to all of them.
type Memory struct{ Caches []*Cache }

// Cache returns the cache of a kind, or nil.
func (m *Memory) Cache(kind Kind) *Cache {
	for _, c := range m.Caches {
		if c.Kind == kind {
			return c
		}
	}
	return nil
}

// Range is the lowest and the highest position of a sequence, -1 and -1 where it has none, as
// llama_memory_seq_pos_min and _max have them. Of two caches with windows and without that is the one with windows;
// with recurrent states it is what both have. It is not known where a state was loaded, until the sequence is
// removed.
func (m *Memory) Range(seq int32) (low, high int32, known bool) {
	if len(m.Caches) == 0 {
		return -1, -1, true
	}
	if c := m.Cache(SWA); c != nil {
		low, high, known = c.Range(seq)
	} else if c := m.Cache(Base); c != nil {
		low, high, known = c.Range(seq)
	} else {
		return m.Caches[0].Range(seq)
	}
	if c := m.Cache(Recurrent); c != nil {
		l, h, k := c.Range(seq)
		low, high, known = max(low, l), min(high, h), known && k
	}
	return low, high, known
}
