package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// newTestLog returns an etcd logger that writes to a buffer at level info.
func newTestLog(closing <-chan struct{}) (*zap.Logger, *bytes.Buffer) {
	out := &bytes.Buffer{}
	log := slog.New(slog.NewTextHandler(out, nil))
	p := &heartbeatMonitor{log: log, interval: 50 * time.Millisecond, election: 300 * time.Millisecond}
	return slogCore{log: log, fatal: newFatal(), heartbeats: p, closing: closing}.logger(), out
}

func TestEtcdLogLevels(t *testing.T) {
	t.Parallel()
	notLearner := errors.New("membership: can only promote a learner member")
	for _, c := range []struct {
		message string
		err     error
		want    string
	}{
		{"something new", nil, "ERROR"},
		{"rejecting promote learner: learner is not ready", nil, ""},
		{"Validation on configuration change failed", notLearner, ""},
		{"Validation on configuration change failed", errors.New("membership: ID exists"), "ERROR"},
		{"failed to update storage version",
			errors.New("cannot detect storage schema version: missing term information"), ""},
		{"failed to update storage version", errors.New("downgrades are not supported"), "ERROR"},
		{"failed to publish local member to cluster through raft", errors.New("etcdserver: too many requests"), ""},
		{"failed to publish local member to cluster through raft",
			errors.New("etcdserver: request timed out"), "ERROR"},
		{"setting up serving from embedded etcd failed.", errors.New("accept: use of closed network connection"), ""},
		{"setting up serving from embedded etcd failed.", nil, "ERROR"},
		{msgStopped, errors.New("the member has been permanently removed from the cluster"), ""},
	} {
		log, out := newTestLog(nil)
		log.Error(c.message, zap.Error(c.err))
		if (c.want == "") != (out.Len() == 0) || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s, %v: %q, want %q", c.message, c.err, out, c.want)
		}
	}
}

func TestEtcdLogWhileClosing(t *testing.T) {
	t.Parallel()
	closing := make(chan struct{})
	log, out := newTestLog(closing)
	close(closing)
	log.Error("something new")
	if out.Len() > 0 {
		t.Errorf("logged while closing: %s", out)
	}
}

// One very late heartbeat or many slightly late ones cause a warning, at most one per warnInterval.
func TestLateHeartbeatsAreReported(t *testing.T) {
	late := func(log *zap.Logger, by time.Duration) {
		for range 2 { // members
			log.Warn(msgHeartbeat, zap.Duration("expected-duration", 100*time.Millisecond),
				zap.Duration("exceeded-duration", by))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		log, out := newTestLog(nil)
		warned := func(want int) {
			t.Helper()
			text := out.String()
			if n := strings.Count(text, "--heartbeat 100ms"); n != want || n != strings.Count(text, "\n") {
				t.Errorf("%d warnings, want %d: %s", n, want, out)
			}
		}
		for range 2 * lateCount { // few in a minute
			late(log, 10*time.Millisecond)
			time.Sleep(latePeriod / 4)
		}
		warned(0)
		time.Sleep(latePeriod)
		for range 2 * lateCount {
			late(log, 10*time.Millisecond)
			time.Sleep(time.Second)
		}
		warned(1)
		late(log, time.Second)
		warned(1)
		time.Sleep(warnInterval)
		late(log, 50*time.Millisecond)
		warned(2)
	})
}
