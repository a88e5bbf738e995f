package lab

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab/grade"
)

// Supply is the power supply of a simulated machine, which its BMC controls.
type Supply struct {
	Machine *Machine
	fault   grade.Mode // of the BMC; empty: it works

	mu  sync.Mutex
	on  bool   // guarded by mu; as the BMC reports it
	off func() // guarded by mu; stops the machine and waits for that; nil: it does not run
}

// Power implements [bmctest.Machine].
func (s *Supply) Power() bmc.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on {
		return bmc.On
	}
	return bmc.Off
}

// SetPower implements [bmctest.Machine].
func (s *Supply) SetPower(want bmc.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == grade.Errs {
		return errors.New("the power supply does not respond")
	}
	if s.on = want == bmc.On; s.fault == grade.Lies {
		return nil
	}
	switch {
	case s.on && s.off == nil:
		s.off = run(s.Machine)
	case !s.on:
		s.stop()
	}
	return nil
}

// SetNextBoot implements [bmctest.Machine]. A simulated machine always boots from the network, which decides.
func (s *Supply) SetNextBoot(bmc.Device) error { return nil }

// stop stops the machine, if it runs. s.mu is held.
func (s *Supply) stop() {
	if s.off != nil {
		s.off()
		s.off = nil
	}
}

// Close stops the machine.
func (s *Supply) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// run runs a machine until the function that it returns is called.
func run(m *Machine) (off func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			m.Log.Error("the machine cannot run", "machine", m.Name, "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Handler returns the BMC's service.
func (s *Supply) Handler(user, password string) http.Handler {
	service := bmctest.NewService(s)
	service.User, service.Password = user, password
	if s.fault != grade.Hangs {
		return service
	}
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}
