package track

import (
	"math"
	"strconv"
	"strings"
)

// A line of llama-server's log, as far as requests are concerned. Each of them names its slot and task before it says
// something, but for those of a task that failed, or that nobody wants any more.
type line struct {
	slot int32 // -1: none
	task int64 // -1: none
	n    int64 // lineTimes: tokens of the answer; lineError: of a prompt that is too long; -1: none
	what lineKind
}

type lineKind uint8

const (
	lineOther      lineKind = iota
	lineSimilarity          // a slot is taken for what it holds
	lineOldest              // … because it was not used for longest
	lineLaunch              // a task gets its slot
	lineTimes               // it was answered to its end
	lineCancel              // nobody waits for it any more
	lineError               // it failed
)

// lines are what each kind is known by.
var lines = [...]string{
	lineSimilarity: "selected slot by LCP similarity", lineOldest: "selected slot by LRU",
	lineLaunch: "processing task, is_child", lineTimes: "        eval time = ", lineCancel: "cancel task, id_task",
	lineError: ", error: ",
}

func readLine(text string) line {
	l := line{slot: -1, task: -1, n: -1}
	for kind := lineSimilarity; int(kind) < len(lines); kind++ {
		if strings.Contains(text, lines[kind]) {
			l.what = kind
		}
	}
	switch l.what {
	case lineCancel:
		l.task = number(text, "id_task = ")
		return l
	case lineError:
		l.task, l.n = number(text, "task id = "), number(text, "error: request (")
		return l
	}
	l.slot, l.task, l.n = int32(number(text, "id ")), number(text, "| task "), number(text, " ms /")
	return l
}

// number is the whole one behind a word; -1: there is none.
func number(text, word string) int64 {
	if n := decimal(text, word); n == math.Trunc(n) {
		return int64(n)
	}
	return -1
}

// decimal is the number behind a word; -1: there is none.
func decimal(text, word string) float64 {
	_, rest, found := strings.Cut(text, word)
	rest = strings.TrimLeft(rest, " ")
	end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(rest)
	}
	n, err := strconv.ParseFloat(rest[:end], 64)
	if !found || err != nil {
		return -1
	}
	return n
}
