package otlp

import (
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a protobuf message that is being written. The numbers of fields are those of opentelemetry-proto 1.
type message []byte

func (m *message) varint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) fixed(field protowire.Number, v uint64) {
	*m = protowire.AppendFixed64(protowire.AppendTag(*m, field, protowire.Fixed64Type), v)
}

func (m *message) double(field protowire.Number, v float64) { m.fixed(field, math.Float64bits(v)) }

func (m *message) bytes(field protowire.Number, v []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), v)
}

// text writes a text, unless it is "".
func (m *message) text(field protowire.Number, v string) {
	if v != "" {
		m.bytes(field, []byte(strings.ToValidUTF8(v, "\uFFFD")))
	}
}

// repeated writes a repeated field.
func (m *message) repeated(field protowire.Number, messages []message) {
	for _, v := range messages {
		m.bytes(field, v)
	}
}

// within is a message with one field.
func within(field protowire.Number, v message) (m message) {
	m.bytes(field, v)
	return m
}

// attributes are those of a span, a data point or a resource: messages of type KeyValue.
type attributes []message

// add adds an attribute whose value, an AnyValue, is written by a function.
func (a *attributes) add(key string, value func(*message)) {
	var of, pair message
	value(&of)
	pair.text(1, key)
	pair.bytes(2, of)
	*a = append(*a, pair)
}

// text adds a text, unless it is "".
func (a *attributes) text(key, text string) {
	if text != "" {
		a.add(key, func(m *message) { m.text(1, text) })
	}
}

// texts adds a list of one text.
func (a *attributes) texts(key, text string) {
	a.add(key, func(m *message) {
		var one message
		one.text(1, text)
		m.bytes(5, within(1, one))
	})
}

func (a *attributes) truth(key string, v bool) {
	a.add(key, func(m *message) { m.varint(2, protowire.EncodeBool(v)) })
}

func (a *attributes) integer(key string, v int64) {
	a.add(key, func(m *message) { m.varint(3, uint64(v)) })
}

func (a *attributes) float(key string, v float64) { a.add(key, func(m *message) { m.double(4, v) }) }

// number adds a number, unless it is below 0: not known.
func (a *attributes) number(key string, n int64) {
	if n >= 0 {
		a.integer(key, n)
	}
}

// seconds adds a duration, unless it is 0.
func (a *attributes) seconds(key string, ns int64) {
	if ns != 0 {
		a.float(key, float64(ns)/1e9)
	}
}

// partial is what an answer says that it did not take: how many spans or data points, and why.
func partial(answer []byte) (n int64, text string) {
	each := func(b []byte, take func(field protowire.Number, value []byte, number uint64)) {
		for len(b) > 0 {
			field, kind, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			b = b[n:]
			var value []byte
			var number uint64
			switch kind {
			case protowire.BytesType:
				value, n = protowire.ConsumeBytes(b)
			case protowire.VarintType:
				number, n = protowire.ConsumeVarint(b)
			default:
				n = protowire.ConsumeFieldValue(field, kind, b)
			}
			if n < 0 {
				return
			}
			b = b[n:]
			take(field, value, number)
		}
	}
	each(answer, func(field protowire.Number, value []byte, _ uint64) {
		if field == 1 {
			each(value, func(field protowire.Number, value []byte, number uint64) {
				switch field {
				case 1:
					n = max(0, int64(number))
				case 2:
					text = string(value)
				}
			})
		}
	})
	return n, text
}
