package otlp

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Off is the URL that stands for no export.
const Off = "off"

// The signals, as the environment variables and the paths of OTLP/HTTP name them.
const (
	traces  = "traces"
	metrics = "metrics"
)

// Defaults of the OpenTelemetry specification.
const (
	defaultTimeout  = 10 * time.Second
	defaultInterval = time.Minute
	defaultDelay    = 5 * time.Second
)

// Settings say where to export to, and as whom.
type Settings struct {
	Traces, Metrics *Endpoint // nil: not exported
	Resource        [][2]string
	Interval        time.Duration // between two exports of metrics
	Delay           time.Duration // that a span waits at most for others
}

// Address is where requests go, as it is printed.
func (s *Settings) Address() string {
	if s.Traces == nil {
		return s.Metrics.URL
	}
	return s.Traces.URL
}

// Endpoint is where one signal goes.
type Endpoint struct {
	URL     string
	Headers [][2]string
	Timeout time.Duration // of one attempt
	Gzip    bool
}

// Lookup reads the settings: a base URL, "" or [Off], as the flag of that name has it, and the standard environment
// variables. Without a URL these name the endpoints. nil: nothing is exported.
func Lookup(flag, base string, env func(string) (string, bool)) (*Settings, error) {
	if env == nil {
		env = os.LookupEnv
	}
	e := environment(env)
	if base == Off || strings.EqualFold(e.get("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	s := &Settings{}
	for signal, to := range map[string]**Endpoint{traces: &s.Traces, metrics: &s.Metrics} {
		var err error
		if *to, err = e.endpoint(flag, base, signal); err != nil {
			return nil, err
		}
	}
	if s.Traces == nil && s.Metrics == nil {
		return nil, nil
	}
	var err error
	if s.Resource, err = pairs("OTEL_RESOURCE_ATTRIBUTES", e.get("OTEL_RESOURCE_ATTRIBUTES")); err != nil {
		return nil, err
	}
	if name := e.get("OTEL_SERVICE_NAME"); name != "" {
		s.Resource = append(s.Resource, [2]string{serviceName, name})
	}
	s.Interval, err = e.duration(defaultInterval, "OTEL_METRIC_EXPORT_INTERVAL")
	delay, failed := e.duration(defaultDelay, "OTEL_BSP_SCHEDULE_DELAY")
	s.Delay = delay
	return s, errors.Join(err, failed)
}

type environment func(string) (string, bool)

func (e environment) get(name string) string {
	text, _ := e(name)
	return strings.TrimSpace(text)
}

// endpoint is that of a signal; nil: it has none.
func (e environment) endpoint(flag, base, signal string) (*Endpoint, error) {
	name := strings.ToUpper(signal)
	if exporter := e.get("OTEL_" + name + "_EXPORTER"); exporter == "none" {
		return nil, nil
	}
	// own is the signal's variable where it is set, else that of all signals.
	own := func(what string) (text, variable string) {
		variable = "OTEL_EXPORTER_OTLP_" + name + "_" + what
		if text = e.get(variable); text == "" {
			variable = "OTEL_EXPORTER_OTLP_" + what
			text = e.get(variable)
		}
		return text, variable
	}
	to, source := base, flag
	if to == "" {
		to, source = own("ENDPOINT")
	}
	if to == "" {
		return nil, nil
	}
	whole := source == "OTEL_EXPORTER_OTLP_"+name+"_ENDPOINT" // a signal's own is used as it is
	at, err := url.Parse(to)
	switch {
	case err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "":
		return nil, fmt.Errorf("%s %q is not a URL of a collector: write one such as http://localhost:4318", source, to)
	case at.User != nil:
		return nil, fmt.Errorf("%s: credentials do not belong into a URL, which is recorded: set "+
			"OTEL_EXPORTER_OTLP_HEADERS, such as Authorization=Basic%%20…", source)
	}
	if !whole {
		at = at.JoinPath("v1", signal)
	}
	p := &Endpoint{URL: at.String()}
	if text, variable := own("PROTOCOL"); text != "" && text != "http/protobuf" {
		return nil, fmt.Errorf("%s=%s is unsupported: set it to http/protobuf, and the endpoint to the collector's "+
			"port for OTLP over HTTP, 4318 as a rule; %s off exports nothing", variable, text, flag)
	}
	switch text, variable := own("COMPRESSION"); text {
	case "", "none":
	case "gzip":
		p.Gzip = true
	default:
		return nil, fmt.Errorf("%s=%s is unsupported: use gzip or none", variable, text)
	}
	text, variable := own("HEADERS")
	if p.Headers, err = pairs(variable, text); err != nil {
		return nil, err
	}
	_, variable = own("TIMEOUT")
	p.Timeout, err = e.duration(defaultTimeout, variable)
	return p, err
}

// duration is a variable of milliseconds.
func (e environment) duration(byDefault time.Duration, variable string) (time.Duration, error) {
	text := cmp.Or(e.get(variable), strconv.FormatInt(byDefault.Milliseconds(), 10))
	ms, err := strconv.ParseUint(text, 10, 31)
	if err != nil || ms == 0 {
		return 0, fmt.Errorf("%s=%s: write milliseconds, such as 10000", variable, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// pairs reads key=value,key=value with percent encoding. Errors do not repeat values: they may be secret.
func pairs(variable, text string) (all [][2]string, err error) {
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil || strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("%s: entry %d is not key=value: write key=value,key=value, with percent encoding",
				variable, len(all)+1)
		}
		all = append(all, [2]string{key, value})
	}
	return all, nil
}
