package bmc

import "time"

func init() { solKeepalive = 300 * time.Millisecond }

// DropConnections closes the idle connections of a Redfish client.
func DropConnections(c Client) { c.(*redfishBMC).wire.close() }
