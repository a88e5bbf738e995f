package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/trivet-project/trivet"
)

// An error of a disk names it, and what to do; others stay as they are.
func TestExplainDisk(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		&fs.PathError{Op: "read", Path: dir, Err: syscall.EIO}, errors.New("etcd failed: input/output error"),
		fmt.Errorf("open it: %w", &fs.PathError{Op: "open", Path: dir + "/gone", Err: syscall.EROFS}),
	} {
		var own *trivet.Error
		if got := explainDisk(err, dir, "head1"); !errors.As(got, &own) || !errors.Is(got, trivet.ErrUnavailable) ||
			!strings.Contains(got.Error(), "the disk of "+dir+device(dir)+" ") ||
			!strings.Contains(own.Hint, "trivet head replace head1") {
			t.Errorf("%v: %v", err, got)
		}
	}
	if device("/proc") != " (proc)" {
		t.Errorf("/proc is on %q", device("/proc"))
	}
	for _, err := range []error{nil, ErrRestart, syscall.ENOSPC} {
		if got := explainDisk(err, dir, "head1"); got != err {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// All errors are counted, one a minute is logged, and the last one is reported for a day.
func TestDiskFaults(t *testing.T) {
	var log strings.Builder
	now := time.Now()
	f := newDiskFaults(slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	f.now = func() time.Time { return now }
	for range 100 {
		f.note("blobs", errors.New("one"))
	}
	now = now.Add(faultLogged)
	f.note("blobs", errors.New("two"))
	f.note("logs", errors.New("three"))
	if got := strings.Count(log.String(), "\n"); got != 3 {
		t.Errorf("%d lines are logged: %s", got, log.String())
	}
	var counted dto.Metric
	if err := f.count.WithLabelValues("blobs").Write(&counted); err != nil || counted.GetCounter().GetValue() != 101 {
		t.Errorf("%v are counted, %v", counted.GetCounter().GetValue(), err)
	}
	if got := f.recent(); !slices.Equal(got, []string{"blobs: two", "logs: three"}) {
		t.Errorf("reported is %q", got)
	}
	now = now.Add(faultLife)
	if got := f.recent(); len(got) != 0 {
		t.Errorf("a day later, reported is %q", got)
	}
}
