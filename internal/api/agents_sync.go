package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// sync applies what an agent reports. For an idle agent it delays the response until there is a run, and for one whose
// run is paused until it is resumed, or its wait ends.
func (h *Handler) sync(ctx context.Context, m *trivet.Machine, s *trivet.Sync) (*trivet.Grant, error) {
	key := m.Status.AgentKey
	m, err := h.machineOf(ctx, m.Name, s.Epoch)
	if err != nil {
		return nil, err
	}
	known := s.Machine // the name that the agent has
	h.Presence.Record(m.Name, m.Status.Epoch, s.Progress)
	until := h.Now().Add(workflow.IdleWait(s.Wait, trivet.Duration(h.Fleet.AgentTimeout())).D())
	for {
		changed := h.waiting.on(m.Name) // before the read, so that no change is missed in between
		if err := h.Presence.Listening(); err != nil {
			return nil, fmt.Errorf("sync: %w", err)
		}
		m, err = h.applySync(ctx, m.Name, key, s)
		if err != nil {
			return nil, err
		}
		g := h.grantOf(m, s.Epoch)
		if m.Status.AgentKey != key {
			g.Order, g.Cause = trivet.OrderStop, "the run has ended with the last report"
			return g, nil
		}
		left := until.Sub(h.Now())
		if g.Run != nil || len(s.Reports) > 0 || left <= 0 || s.Paused && !g.Paused || g.Machine != known {
			return g, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-h.drain:
			until = h.Now()
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// applySync reads the machine, writes what the sync makes necessary, and returns the machine as it is then.
func (h *Handler) applySync(ctx context.Context, name, key string, s *trivet.Sync) (m *trivet.Machine, err error) {
	for range 2 {
		if m, err = h.machineOf(ctx, name, s.Epoch); err != nil {
			return nil, err
		}
		if err := workflow.CheckKey(m, key); err != nil {
			return nil, fmt.Errorf("sync: %w", err)
		}
		name, s.Machine = m.Name, m.Name
		wrote, err := h.writeSync(ctx, m, s)
		if err != nil {
			return nil, err
		}
		if !wrote {
			break
		}
		if len(s.Reports) > 0 { // the last of them may have ended the run, and with it the agent's epoch and key
			return h.Fleet.Machines.GetShared(name)
		}
	}
	return m, nil
}

// machineOf reads the machine of an agent that has this epoch. It may be renamed while the agent waits. A head that
// knows only an older epoch is behind: its response would be an order to drop a run that was granted.
func (h *Handler) machineOf(ctx context.Context, name string, epoch int64) (*trivet.Machine, error) {
	m, err := h.machineNamed(name)
	if err != nil || workflow.CheckEpoch(m, epoch) == nil {
		return m, err
	}
	if err := h.fresh(ctx); err != nil {
		return nil, err
	}
	if m, err = h.machineNamed(name); err != nil {
		return nil, err
	}
	if err := workflow.CheckEpoch(m, epoch); err != nil {
		return nil, fmt.Errorf("sync: %w", err)
	}
	return m, nil
}

// machineNamed reads the machine of a name, or the one that had the name last. The key of its agent is compared.
func (h *Handler) machineNamed(name string) (*trivet.Machine, error) {
	m, err := h.Fleet.Machines.GetShared(name)
	if !errors.Is(err, trivet.ErrNotFound) {
		return m, err
	}
	for _, m := range h.Fleet.MachinesOnce(name) {
		return m, nil
	}
	return nil, err
}

// writeSync writes what a sync makes necessary, and reports whether that was anything.
func (h *Handler) writeSync(ctx context.Context, m *trivet.Machine, s *trivet.Sync) (wrote bool, err error) {
	what, err := workflow.DecideSync(m, h.Fleet.RunOf(m), s)
	switch {
	case err != nil:
		return false, fmt.Errorf("sync: %w", err)
	case what == workflow.WriteReports:
		err := h.Fleet.Report(ctx, s)
		if errors.Is(err, fleet.ErrTooOften) || errors.Is(err, store.ErrOverloaded) {
			// None is acknowledged: the agent sends them again, after a while. An error would make it connect to another
			// head, which costs both more than a report.
			h.metrics.delayed.Inc()
			return false, nil
		}
		return true, err
	case what == workflow.WriteGrant:
		return true, h.Fleet.GrantIdle(ctx, m.Name, m.Status.AgentKey)
	case what == workflow.WriteIdle:
		return true, h.Fleet.Verify(ctx, m.Name, "its agent has been idle")
	}
	return false, nil
}

// grantOf returns the response to an agent that has this epoch.
func (h *Handler) grantOf(m *trivet.Machine, epoch int64) *trivet.Grant {
	run := h.Fleet.RunOf(m)
	g := &trivet.Grant{
		Machine: m.Name, Epoch: m.Status.Epoch, Acked: workflow.Acked(m, run), Paused: workflow.IsPaused(m, run),
		Time:     h.Now(),
		Interval: workflow.HeartbeatInterval(trivet.Duration(h.Fleet.AgentTimeout())),
	}
	g.Heads, g.Blobs = h.Fleet.HeadURLs(m)
	g.Trust = h.trust
	if epoch == m.Status.Epoch {
		return g
	}
	if g.Run = h.Fleet.GrantedRun(m); g.Run != nil && len(g.Blobs) > 0 {
		g.Run.PhoneHomes = h.phoneHomes(m, g.Run.UID, g.Blobs)
		g.Run.Join = h.joinOf(m, g)
	}
	return g
}

// phoneHomeTimeout is how long an installed system has for its first boot.
const phoneHomeTimeout = 30 * 24 * time.Hour

// phoneHomes returns the URLs, at the heads' boot servers, that the installed system phones home to.
func (h *Handler) phoneHomes(m *trivet.Machine, run string, heads []string) (urls []string) {
	if len(m.Spec.NICs) == 0 {
		return nil
	}
	token, err := h.Keys.SignBoot(auth.BootToken{
		Purpose: auth.PurposePhoneHome, Machine: m.Name, MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch,
		Run: run, Expires: h.Now().Add(phoneHomeTimeout),
	})
	if err != nil {
		h.Log.Error("cannot sign a phone-home token", "machine", m.Name, "error", err)
		return nil
	}
	for _, head := range heads {
		urls = append(urls, head+"/phone-home/"+token)
	}
	return urls
}
