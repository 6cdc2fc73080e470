package export

import "sync"

// promptLog counts prompts whose rows are all in the shards: those before the first one of which that is not so, in
// the order in which they began. Its methods are for any goroutine.
type promptLog struct {
	results bool // say which prompts have ended

	mu     sync.Mutex
	done   int64
	list   []*loggedPrompt // begun after those that are done
	open   map[promptKey]*loggedPrompt
	newest uint64 // execution
}

// loggedPrompt is a prompt that is not counted yet.
type loggedPrompt struct {
	key    promptKey
	rows   int64 // that were computed, and are in no shard yet, or never will be
	newest uint64
	ended  bool
}

func newPromptLog(results bool) *promptLog {
	return &promptLog{results: results, open: map[promptKey]*loggedPrompt{}}
}

// row notes a row of a prompt in an execution.
func (l *promptLog) row(key promptKey, begins bool, exec uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = exec
	p := l.open[key]
	if p == nil || begins && key.request < 0 {
		p = &loggedPrompt{key: key}
		l.list, l.open[key] = append(l.list, p), p
	}
	p.rows++
	p.newest = exec
}

// note notes which rows have come into the shards of a dataset since the last time, and which prompts its results have.
func (l *promptLog) note(d *dataset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, n := range d.kept {
		if p := l.open[key]; p != nil {
			p.rows -= n
		}
	}
	clear(d.kept)
	for _, p := range l.list {
		result, known := d.prompts[p.key]
		p.ended = p.ended || known && !result.interrupted
	}
}

// count counts. all: the prompts that were computed are those that there are. Without results a prompt has ended when a
// micro-batch has no row of it.
func (l *promptLog) count(all bool) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.list) > 0 {
		p := l.list[0]
		if ended := p.ended || all || !l.results && p.newest < l.newest; !ended || p.rows != 0 {
			break
		}
		l.done++
		l.list = l.list[1:]
		if l.open[p.key] == p {
			delete(l.open, p.key)
		}
	}
	return l.done
}
