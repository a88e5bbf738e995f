package cluster

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo sends what etcd logs, from warnings up, to our own log. What etcd cannot survive ends etcd, not the process. What it
// says once closing is closed is about an end that we wanted, and of use only to who debugs it.
func zapTo(log *slog.Logger, f *fatal, closing <-chan struct{}) *zap.Logger {
	return zap.New(slogCore{log: log.With("part", "etcd"), closing: closing}, zap.WithFatalHook(f), zap.WithPanicHook(f))
}

type slogCore struct {
	log     *slog.Logger
	closing <-chan struct{}
}

func (c slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.log.With(attrs(fields)...), c.closing}
}

// pointless are warnings about doors that we do not open, and one about a version that is written a moment later.
var pointless = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"failed to update storage version":                                                     true,
}

func (c slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && !pointless[e.Message] {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), c.level(e.Level), e.Message, attrs(fields)...)
	return nil
}

func (c slogCore) level(l zapcore.Level) slog.Level {
	select {
	case <-c.closing:
		return slog.LevelDebug
	default:
	}
	if l > zapcore.WarnLevel {
		return slog.LevelError
	}
	return slog.LevelWarn
}

func (c slogCore) Sync() error { return nil }

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
