package bmc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

func TestErrorsAreCountedByKind(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	for _, err := range []error{
		fmt.Errorf("401: %w", trivet.ErrUnauthenticated), errAddress, trivet.ErrInvalid, ErrNoConsole,
		fmt.Errorf("%w: %w", trivet.ErrUnknown, context.DeadlineExceeded), trivet.ErrUnknown, trivet.ErrUnavailable,
		errors.New("new"), nil, context.Canceled,
	} {
		m.Failed("power", err)
	}
	(*Metrics)(nil).Failed("power", trivet.ErrUnavailable)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, all := map[string]float64{}, 0
	for _, v := range families[0].GetMetric() {
		all++
		if n := v.GetCounter().GetValue(); n > 0 {
			got[v.GetLabel()[0].GetValue()+" "+v.GetLabel()[1].GetValue()] = n
		}
	}
	want := map[string]float64{"unauthenticated power": 1, "forbidden power": 1, "invalid power": 2, "timeout power": 1,
		"unknown power": 1, "unavailable power": 1, "other power": 1}
	if !maps.Equal(got, want) || all != len(errorUses)*len(errorKinds) {
		t.Errorf("%d counters: %v, want %v", all, got, want)
	}
}
