package memtrace

// window is the current one of a length.
type window struct{ length, start, number int64 }

// clock is the time of touches, and the windows of time that working sets are measured in.
type clock struct {
	windows []window
	latest  int64 // begin of the window that began last
	turn    int64 // when the next one begins
	first   int64
	now     int64
	at      int64 // time of the present touch
	begun   bool
}

// advance moves the clock forward.
func (c *clock) advance(ns int64) {
	if !c.begun {
		c.first, c.now, c.begun, c.turn = ns, ns, true, ns
	}
	c.now = max(c.now, ns)
	if c.now < c.turn {
		return
	}
	c.turn = Forever
	for k := range c.windows {
		w := &c.windows[k]
		w.number = (c.now-c.first)/w.length + 1
		w.start = c.first + (w.number-1)*w.length
		c.latest = max(c.latest, w.start)
		c.turn = min(c.turn, w.start+w.length)
	}
}

// fresh adds bytes that nobody touched before to working sets.
func (c *clock) fresh(r *region, bytes int64) {
	for k := range c.windows {
		if c.at >= c.windows[k].start { // what is reported late belongs to a window that has passed
			c.add(r, k, bytes)
		}
	}
}

// addRetouched adds bytes that were touched before, the last time at ns, to working sets that they are not part of yet.
func (c *clock) addRetouched(r *region, ns, bytes int64) {
	if ns >= c.latest {
		return
	}
	for k := range c.windows {
		if ns < c.windows[k].start {
			c.add(r, k, bytes)
		}
	}
}

// add adds bytes to the working set of a window.
func (c *clock) add(r *region, k int, bytes int64) {
	r.windows[k].add(c.windows[k].number, bytes)
	r.kind.windows[k].add(c.windows[k].number, bytes)
}

// finish ends the working sets of a region or a type.
func (c *clock) finish(m *Metrics) {
	for k := range c.windows {
		m.windows[k].finish((c.now-c.first)/c.windows[k].length + 1)
	}
}
