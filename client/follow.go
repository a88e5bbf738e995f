package client

import (
	"errors"

	"github.com/trivet-project/trivet"
)

// Follow makes the client trust the cluster's CAs of these pins, separated by commas, instead of those of its
// configuration: a response has said that they were changed, or did so to a program before. It changes nothing where
// the client trusts certificates in PEM, and where the pins are empty or not valid.
func (c *Client) Follow(trust string) {
	if c.pinned != nil && trust != "" {
		c.pinned.follow(trust)
	}
}

func (p *pinned) follow(trust string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if trust == p.trust {
		return
	}
	pins, err := parsePins(trust)
	if err != nil {
		return
	}
	p.trust = trust
	p.pins.Store(&pins)
	if p.onChange != nil {
		p.onChange(trust)
	}
}

// SaveTrust replaces the pins of a context in the config file, where they still are the former ones. It does nothing
// where the context is not from the file: see [Environment].
func SaveTrust(context, former, trust string) error {
	path, err := FilePath()
	if err != nil {
		return err
	}
	f, err := ReadFile(path)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	name := f.Name(context)
	c, ok := f.Contexts[name]
	if !ok || c.Trust != former {
		return nil
	}
	c.Trust = trust
	f.Contexts[name] = c
	return f.Write(path)
}
