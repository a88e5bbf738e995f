package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
)

// Registration writes this head's record, and keeps what it knows of the cluster in its data directory.
type Registration struct {
	Local    *Local
	Records  *Records
	Member   *cluster.Member
	Writable func() error // returns why this head cannot write

	done bool // Register has succeeded
}

const (
	// firstRegisterTimeout bounds the writes of a first start, registerTimeout those of a later one: that serves
	// reads and boots meanwhile.
	firstRegisterTimeout = time.Minute
	registerTimeout      = 15 * time.Second
	// registerRetryInterval is the time between two attempts.
	registerRetryInterval = 5 * time.Second
	// saveInterval is how often the members are saved.
	saveInterval = 3 * time.Second
)

// Register writes how this head is reached and creates an administrator's credential, where this head has none. A
// head that cannot write now, as it has no leader, or its disk is full or slow, serves reads and boots, and registers
// later (see Run). A first start must succeed, as there is nothing to serve yet.
func (r *Registration) Register(ctx context.Context) error {
	timeout := registerTimeout
	if r.Local.FirstStart() {
		timeout = firstRegisterTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.Writable()
	if err == nil {
		err = r.register(ctx)
	}
	if isUnavailable(err) && !r.Local.FirstStart() {
		r.Local.cfg.Log.Warn("this head cannot write yet; it serves reads and boots", "error", err)
		return nil
	}
	r.done = err == nil
	return err
}

func (r *Registration) register(ctx context.Context) error {
	if err := r.Member.SetURL(ctx, r.Local.addr.Peer); err != nil {
		return err
	}
	if err := r.writeRecord(ctx); err != nil {
		return fmt.Errorf("register head: %w", err)
	}
	if err := r.Records.RaiseClusterVersion(ctx); err != nil {
		return fmt.Errorf("version of the cluster: %w", err)
	}
	if err := r.writeAdminFile(ctx); errors.Is(err, trivet.ErrInvalid) {
		return &trivet.Error{Op: "read the administrator's file", Err: err,
			Hint: "remove it; the next start creates another one"}
	} else if err != nil {
		return fmt.Errorf("administrator's file: %w", err)
	}
	return r.Local.SaveStarted()
}

// writeRecord writes this head's record.
func (r *Registration) writeRecord(ctx context.Context) error {
	l := r.Local
	cas := l.CAs()
	_, err := r.Records.Store.Update(ctx, func(tx *store.Tx) error {
		h, err := r.Records.Heads.In(tx).Get(l.Name())
		if errors.Is(err, trivet.ErrNotFound) {
			h, err = &trivet.Head{Meta: trivet.Meta{Name: l.Name()}, Spec: trivet.HeadSpec{Role: trivet.RoleVoter}}, nil
		}
		if err := errors.Join(err, r.Records.checkRelease(tx, l.Name(), trivet.CurrentRelease)); err != nil {
			return err
		}
		st := &h.Status
		st.Release = trivet.CurrentRelease
		st.Version, st.API, st.Boot, st.Peer, st.DHCP = l.cfg.Version, l.addr.API, l.addr.Boot, l.addr.Peer, l.addr.DHCP
		st.Started, st.Member = l.started, cluster.FormatID(r.Member.ID())
		for _, name := range auth.RingNames {
			st.SetKeys(name, l.Ring(name).IDs())
		}
		st.BootCAs = l.BootCAs().IDs()
		st.StoredCAs, st.CAs = cas.Stored(), cas.InUse()
		if st.State == "" {
			st.State = trivet.HeadMember
		}
		return r.Records.Heads.In(tx).Put(h)
	})
	return err
}

// Run retries Register until it succeeds, and saves the members and the heads' addresses as they change, until ctx
// ends.
func (r *Registration) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { r.retry(ctx) })
	running.Go(func() { r.save(ctx) })
	running.Wait()
}

func (r *Registration) retry(ctx context.Context) {
	tick := time.NewTicker(registerRetryInterval)
	defer tick.Stop()
	for !r.done {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.Register(ctx); err != nil {
			r.Local.cfg.Log.Error("cannot register this head; retrying", "error", err)
		}
	}
}

func (r *Registration) save(ctx context.Context) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := r.Local.SaveMembers()
		if fileExists(AdminFile(r.Local.cfg.Dir)) {
			err = errors.Join(err, r.updateAdminFile())
		}
		if err != nil {
			r.Local.cfg.Log.Warn("cannot save what is known of the heads", "error", err)
		}
	}
}
