package bmc

import (
	"context"
	"time"
)

func init() { solKeepalive = 300 * time.Millisecond }

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
