package maintenance

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		used, last, now int64
		level           level
		compact         int64
	}{
		{69, 5, 9, normal, 0},
		{70, 5, 9, filling, 5},
		{70, 0, 9, filling, 0}, // the first check keeps all that there is
		{70, 9, 9, filling, 0}, // nothing was written since
		{90, 5, 9, full, 5},
	} {
		level, compact := decide(cluster.Usage{Used: c.used, File: c.used, Quota: 100}, c.last, c.now)
		if level != c.level || compact != c.compact {
			t.Errorf("%+v: level %d, compact before %d", c, level, compact)
		}
	}
}

func TestFragmented(t *testing.T) {
	for _, c := range []struct {
		u    cluster.Usage
		want bool
	}{
		{cluster.Usage{File: 9, Used: 1, Quota: 100}, false},
		{cluster.Usage{File: 10, Used: 6, Quota: 100}, false},
		{cluster.Usage{File: 10, Used: 5, Quota: 100}, true},
		{cluster.Usage{File: 600 << 20, Used: 1 << 20, Quota: 8 << 30}, true},
	} {
		if got := fragmented(c.u); got != c.want {
			t.Errorf("%+v: %v", c.u, got)
		}
	}
}

func TestOthersUp(t *testing.T) {
	up := peer.Status{Info: peer.Info{Leader: "1"}}
	behind, lost := up, up
	behind.Lag, lost.Err = peer.MaxLag+1, errors.New("no route")
	others := map[string]string{"head1": "https://10.0.0.1", "witness": "https://10.0.0.2"}
	if err := othersUp(others, map[string]peer.Status{"head1": up, "witness": up}); err != nil {
		t.Error(err)
	}
	for _, other := range []peer.Status{behind, lost, {}} {
		err := othersUp(others, map[string]peer.Status{"head1": up, "witness": other})
		if !errors.Is(err, trivet.ErrUnavailable) {
			t.Errorf("with %+v: %v", other, err)
		}
	}
	if err := othersUp(others, map[string]peer.Status{"head1": up}); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("with an unknown head: %v", err)
	}
}
