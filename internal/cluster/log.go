package cluster

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// slogCore sends etcd's log, from warnings up, to a slog.Logger. A fatal error of etcd stops etcd, not the process.
// Some messages are events for this package.
type slogCore struct {
	log        *slog.Logger
	fatal      *fatal
	heartbeats *heartbeatMonitor
	closing    <-chan struct{} // once it is closed, messages are about an intended stop
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
	c.handle(e.Message, fields)
	c.log.Log(context.Background(), c.level(e, errorIn(fields)), e.Message, attrs(fields)...)
	return nil
}

func (c slogCore) Sync() error { return nil }

// Events that etcd reports only in its log.
const (
	msgStopped   = "server error" // it was removed; waitStopped reports it
	msgHeartbeat = "leader failed to send out heartbeat on time; took too long, " +
		"leader is overloaded likely from slow disk"
	msgSlowDisk = "slow fdatasync"
)

func (c slogCore) handle(message string, fields []zapcore.Field) {
	if message == msgHeartbeat {
		c.heartbeats.late(durationIn(fields, "expected-duration") + durationIn(fields, "exceeded-duration"))
	}
}

// muted are messages of no use to an operator, logged at debug level. If the value is not empty, only those whose error
// contains it.
var muted = map[string]string{
	// Listeners that this package does not open.
	"Running http and grpc server on single port. This is not recommended for production.": "",
	"simple token is not cryptographically signed":                                         "",

	// The stop of the listener.
	"setting up serving from embedded etcd failed.": "use of closed network connection",

	// A learner is promoted by retrying.
	"rejecting promote learner: learner is not ready": "",
	"Validation on configuration change failed":       "can only promote a learner",
	// Shortly after the start, until etcd has applied an entry, it considers itself behind by all entries and
	// publishes its name thousands of times.
	"failed to update storage version":                       "missing term information",
	"Failed to detect schema version":                        "missing term information",
	"failed to publish local member to cluster through raft": "too many requests",
	// Reported by Failed, heartbeatMonitor and watchDisk.
	"data-dir used by this member must be removed": "",
	msgStopped: "", msgHeartbeat: "", msgSlowDisk: "",
}

func (c slogCore) level(e zapcore.Entry, err error) slog.Level {
	select {
	case <-c.closing:
		return slog.LevelDebug
	default:
	}
	part, known := muted[e.Message]
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
