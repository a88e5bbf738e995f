package installer

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// The files of the state directory. It is in memory: they survive the process, not a reboot.
const (
	stateFile = "grant.json"
	headsFile = "heads.json"
	keyFile   = "agent.key"
)

// state is what a restarted agent needs to continue without a head. Its progress is in the journal.
type state struct {
	BootID string       `json:"bootID"`
	Grant  trivet.Grant `json:"grant"`
}

// LoadKey returns the key that agents of this boot authenticate with, and creates it if it does not exist.
func LoadKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, keyFile)
	seed, err := os.ReadFile(path)
	switch {
	case err == nil && len(seed) == ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(seed), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("load the agent's key: %w", err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the agent's key: %w", err)
	}
	if err := renameio.WriteFile(path, key.Seed(), 0o600); err != nil {
		return nil, fmt.Errorf("write the agent's key: %w", err)
	}
	return key, nil
}

// Heads is what an agent knows of the heads: their API URLs, and the pins of their CAs.
type Heads struct {
	URLs  []string `json:"urls,omitempty"`
	Trust string   `json:"trust,omitempty"`
}

// LoadHeads returns what the previous agent of this boot received, if any. The [Client] uses it besides the kernel's
// command line, since heads join and leave, and their CA may be replaced, while a machine runs.
func LoadHeads(dir string) (h Heads) {
	b, err := os.ReadFile(filepath.Join(dir, headsFile))
	if err != nil || json.Unmarshal(b, &h) != nil {
		return Heads{} // the first answer contains them
	}
	return h
}

func (a *agent) saveHeads() {
	if a.State == "" {
		return
	}
	b, err := json.Marshal(a.heads)
	if err == nil {
		err = renameio.WriteFile(filepath.Join(a.State, headsFile), b, 0o600)
	}
	if err != nil {
		a.Log.Warn("cannot save the heads; a restarted agent uses those of the boot", "error", err)
	}
}

func (a *agent) saveState(g trivet.Grant) {
	if a.State == "" {
		return
	}
	b, err := json.Marshal(state{BootID: a.BootID, Grant: g})
	if err == nil {
		err = renameio.WriteFile(filepath.Join(a.State, stateFile), b, 0o600)
	}
	if err != nil {
		a.Log.Warn("cannot save the grant; a restarted agent must reboot the machine", "error", err)
	}
}

func (a *agent) forgetState() {
	if a.State == "" {
		return
	}
	if err := os.Remove(filepath.Join(a.State, stateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.Log.Warn("cannot remove the saved grant", "error", err)
	}
}

// resume continues the run of an earlier process of the same boot, if there was one. It needs no head.
func (a *agent) resume() bool {
	if a.State == "" {
		return false
	}
	b, err := os.ReadFile(filepath.Join(a.State, stateFile))
	if err != nil {
		return false
	}
	var s state
	last := a.Journal.Last()
	if err := json.Unmarshal(b, &s); err != nil || s.BootID != a.BootID || s.Grant.Run == nil ||
		last.Epoch != s.Grant.Epoch || last.Boot != a.BootID {
		a.Log.Warn("the saved state does not match the journal or this boot", "boot", s.BootID, "epoch", s.Grant.Epoch,
			"journal", last.Epoch)
		return false
	}
	a.learn(s.Grant)
	a.epoch, a.granted = s.Grant.Epoch, s.Grant
	a.Log.Info("run resumed", "workflow", s.Grant.Run.Workflow, "epoch", a.epoch)
	a.work = a.newWork(s.Grant.Run, pastOf(s.Grant.Run, a.Journal.Entries(), a.epoch))
	a.work.gate.set(s.Grant.Paused)
	a.work.start()
	return true
}

// pastOf returns the progress of a run by its grant and the journal.
func pastOf(run *trivet.Run, entries []journal.Entry, epoch int64) past {
	p := progressOf(run)
	for _, e := range entries {
		if e.Report == nil || e.Epoch != epoch {
			continue
		}
		r := *e.Report
		act := run.Spec.Action(r.Action)
		if act == nil {
			continue
		}
		p.interrupted, p.over = nil, nil
		switch r.State {
		case trivet.StepRunning:
			p.interrupted = &r
			p.attempts[r.Action] = r.Attempt
		case trivet.StepDone:
			p.done[r.Action] = true
			if ending := action.EndingOf(act.Use); ending != action.EndNone {
				p.over = &outcome{ending: ending}
			}
		case trivet.StepFailed:
			p.attempts[r.Action] = r.Attempt
			if r.Final || r.Attempt > act.Retries {
				p.over = &outcome{}
			}
		}
	}
	return p
}
