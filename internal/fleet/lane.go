package fleet

import (
	"context"
	"errors"
	"sync"
)

// The transactions that change members of one provision all write its counts: of those that are sent at the same time
// one is committed, and the others run again. So at each head they follow each other, in a lane for each provision.
// That only saves work: whatever other heads and requests write meanwhile is compared.

// lanes are the lanes that are in use, by the full name of a provision.
type lanes struct {
	mu sync.Mutex
	by map[string]*lane // guarded by mu
}

// lane is used by one transaction at a time.
type lane struct {
	token chan struct{} // held by the transaction that uses the lane
	users int           // those that hold or await it; guarded by lanes.mu
}

func newLanes() *lanes { return &lanes{by: map[string]*lane{}} }

// pass is what one transaction has of the lanes, for all of its runs.
type pass struct {
	lanes *lanes
	name  string // of its lane; empty: it has needed none yet
	lane  *lane
	held  bool
}

type passKey struct{}

// errLaneBusy ends a run of a transaction that needs a lane which another one uses.
var errLaneBusy = errors.New("its lane is used by another transaction")

// inLane calls update, and again once it has the lane that it needs.
func (f *Fleet) inLane(ctx context.Context, update func(ctx context.Context) error) error {
	p := &pass{lanes: f.lanes}
	defer p.leave()
	for {
		err := update(context.WithValue(ctx, passKey{}, p))
		if !errors.Is(err, errLaneBusy) {
			return err
		}
		select {
		case p.lane.token <- struct{}{}:
			p.held = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enterLane takes the lane of a provision for the transaction of a context, or fails with errLaneBusy. A transaction
// without a pass goes on without one.
func enterLane(ctx context.Context, name string) error {
	p, ok := ctx.Value(passKey{}).(*pass)
	if !ok || p.held {
		return nil
	}
	if p.name != name {
		p.leave()
		p.use(name)
	}
	select {
	case p.lane.token <- struct{}{}:
		p.held = true
		return nil
	default:
		return errLaneBusy
	}
}

// use makes the lane of a name the one of a pass.
func (p *pass) use(name string) {
	p.lanes.mu.Lock()
	defer p.lanes.mu.Unlock()
	l := p.lanes.by[name]
	if l == nil {
		l = &lane{token: make(chan struct{}, 1)}
		p.lanes.by[name] = l
	}
	l.users++
	p.name, p.lane = name, l
}

// leave gives the lane to the next.
func (p *pass) leave() {
	if p.lane == nil {
		return
	}
	if p.held {
		<-p.lane.token
	}
	p.lanes.mu.Lock()
	defer p.lanes.mu.Unlock()
	if p.lane.users--; p.lane.users == 0 {
		delete(p.lanes.by, p.name)
	}
	p.name, p.lane, p.held = "", nil, false
}
