package server

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// powerReadTimeout bounds a question to a BMC about its state.
const powerReadTimeout = 10 * time.Second

// readPower asks the BMC of a machine, which has one, for its power state. It sends no command, so it needs no intent.
func (s *Server) readPower(ctx context.Context, m *trivet.Machine) (power string, err error) {
	defer func() { s.bmcErrors.Failed("read", err) }()
	ctx, cancel := context.WithTimeout(ctx, powerReadTimeout)
	defer cancel()
	cfg, err := s.fleet.BMC(m, unsealer(s.local.Keys()))
	if err != nil {
		return "", err
	}
	cfg.Commands = s.cfg.PowerCommands
	c, err := bmc.Open(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer c.Close()
	state, err := c.Power(ctx)
	return string(state), err
}
