package bmc

import (
	"context"
	"time"
)

func init() {
	consoleKeepalive, sshWrite = 300*time.Millisecond, 2*time.Second
	rmcpTimeout = 10 * time.Second // a busy computer answers late, and would do again what is sent again
}

// DropConnections closes the idle connections of a Redfish client.
func DropConnections(c Client) { c.(*redfishBMC).wire.close() }

// The names of sensors and events.
var (
	SensorName = sensorName
	EventName  = eventName
)

// Call sends a command to an IPMI BMC.
func Call(ctx context.Context, c Client, netFn, command byte, data ...byte) error {
	return c.(*ipmiBMC).do(ctx, "send to", func(ctx context.Context, s *rmcpSession) error {
		_, err := s.call(ctx, netFn, command, data...)
		return err
	})
}

// DialSSH opens the console of an SSH service.
func DialSSH(ctx context.Context, cfg Config, address, command string) (Console, error) {
	return startSSH(ctx, cfg, sshTarget{address, command})
}

// ParseHostKeys returns how many keys Config.HostKeys has.
func ParseHostKeys(text string) (int, error) {
	keys, err := parseHostKeys(text)
	return len(keys), err
}
