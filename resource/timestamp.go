package resource

import (
	"fmt"
	"strconv"
	"time"
)

// Timestamp is a time in microseconds since 1970. It is written as a quoted number, as LRI documents it. All three
// forms that LRI writes can be read: a quoted number, a number, and local time without a zone ("2025-11-21
// 10:15:00.123").
type Timestamp int64

// localForm is how LRI's sessions, layers and components write their time.
const localForm = "2006-01-02 15:04:05.000"

// MarshalJSON writes the quoted number.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return append(strconv.AppendInt([]byte{'"'}, int64(t), 10), '"'), nil
}

// UnmarshalJSON reads any of the three forms.
func (t *Timestamp) UnmarshalJSON(text []byte) error {
	s := string(text)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if us, err := strconv.ParseInt(s, 10, 64); err == nil {
		*t = Timestamp(us)
		return nil
	}
	local, err := time.ParseInLocation(localForm, s, time.Local)
	if err != nil {
		return fmt.Errorf("timestamp %.40q: want microseconds since 1970 or a time like %s", s, localForm)
	}
	*t = Timestamp(local.UnixMicro())
	return nil
}
