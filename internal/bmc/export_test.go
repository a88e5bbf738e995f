package bmc

// DropConnections closes the idle connections of a Redfish client.
func DropConnections(c Client) { c.(*redfishBMC).wire.close() }
