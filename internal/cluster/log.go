package cluster

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// slogCore sends what etcd logs, from warnings up, to our own log. What etcd cannot survive ends etcd, not the process. Some
// of it is for this package.
type slogCore struct {
	log     *slog.Logger
	fatal   *fatal
	pace    *pace
	closing <-chan struct{} // once it is closed, what is said is about an end that we wanted
}

func (c slogCore) logger() *zap.Logger {
	return zap.New(c, zap.WithFatalHook(c.fatal), zap.WithPanicHook(c.fatal))
}

func (c slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	c.log = c.log.With(attrs(fields)...)
	return c
}

func (c slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.hear(e.Message, fields)
	c.log.Log(context.Background(), c.level(e, errorIn(fields)), e.Message, attrs(fields)...)
	return nil
}

func (c slogCore) Sync() error { return nil }

// What etcd tells nobody but its log.
const (
	saysStop      = "server error" // it was removed; attend tells
	saysHeartbeat = "leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk"
	saysDisk      = "slow fdatasync"
)

func (c slogCore) hear(message string, fields []zapcore.Field) {
	if message == saysHeartbeat {
		c.pace.heartbeat(durationIn(fields, "expected-duration") + durationIn(fields, "exceeded-duration"))
	}
}

// pointless are lines that tell an operator nothing, each with what its error says where others of that line matter.
var pointless = map[string]string{
	// Doors that we do not open.
	"Running http and grpc server on single port. This is not recommended for production.": "",
	"simple token is not cryptographically signed":                                         "",
	"setting up serving from embedded etcd failed.":                                        "use of closed network connection",
	// A learner is promoted by trying.
	"rejecting promote learner: learner is not ready": "",
	"Validation on configuration change failed":       "can only promote a learner",
	// For a moment after the start: until it has applied an entry, etcd takes itself for behind by all that there ever were, and
	// says its name again and again, thousands of times.
	"failed to update storage version":                       "missing term information",
	"Failed to detect schema version":                        "missing term information",
	"failed to publish local member to cluster through raft": "too many requests",
	// Told by Failed, by pace, and by watchDisk.
	"data-dir used by this member must be removed": "",
	saysStop: "", saysHeartbeat: "", saysDisk: "",
}

func (c slogCore) level(e zapcore.Entry, err error) slog.Level {
	select {
	case <-c.closing:
		return slog.LevelDebug
	default:
	}
	part, known := pointless[e.Message]
	switch {
	case known && (part == "" || err != nil && strings.Contains(err.Error(), part)):
		return slog.LevelDebug
	case e.Level > zapcore.WarnLevel:
		return slog.LevelError
	}
	return slog.LevelWarn
}

func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	var out []any
	for k, v := range enc.Fields {
		out = append(out, k, v)
	}
	return out
}

func durationIn(fields []zapcore.Field, key string) time.Duration {
	for _, f := range fields {
		if f.Key == key && f.Type == zapcore.DurationType {
			return time.Duration(f.Integer)
		}
	}
	return 0
}
