package machinelist

import (
	"strings"

	"github.com/trivet-project/trivet"
)

// The drivers of other tools that speak Redfish, by the names that they have in URLs, and those of BMCs that also speak
// IPMI.
var (
	redfishDrivers = map[string]bool{"https": true, "http": true, "redfish": true, "redfish-virtualmedia": true,
		"redfish-uefihttp": true, "idrac-redfish": true, "idrac-virtualmedia": true, "ilo5-redfish": true,
		"ilo5-virtualmedia": true, "ilo6-redfish": true, "ilo6-virtualmedia": true}
	ipmiDrivers = map[string]bool{"ipmi": true, "idrac": true, "ilo4": true, "ilo4-virtualmedia": true, "ilo5": true,
		"irmc": true}
)

// knownDriver reports whether a BMC of a driver, such as "redfish" or "idrac+https", can be used.
func knownDriver(driver string) bool {
	driver, _, _ = strings.Cut(driver, "+")
	return redfishDrivers[driver] || ipmiDrivers[driver]
}

// bmc sets the BMC by an address such as "ipmi://10.0.0.1", "redfish://bmc1/redfish/v1/Systems/1" or "10.0.0.1:623".
// That of an address without a driver is protocol.
func (e *Entry) bmc(address, protocol, secret string) {
	if address == "" {
		return
	}
	driver, rest, isURL := strings.Cut(strings.TrimSpace(address), "://")
	if !isURL {
		driver, rest = protocol, driver
	}
	driver, transport, _ := strings.Cut(strings.ToLower(driver), "+")
	rest = strings.TrimRight(rest, "/")
	switch {
	case redfishDrivers[driver]:
		if transport == "http" || driver == "http" {
			e.note("its BMC is used by HTTP there; Trivet uses HTTPS")
		}
		e.Machine.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: redfishAddress(rest)}
	case ipmiDrivers[driver]:
		if driver != "ipmi" {
			e.note("its BMC is used by %s there; Trivet uses IPMI, which must be enabled", driver)
		}
		host, _, _ := strings.Cut(rest, "/")
		e.Machine.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: host}
	default:
		e.note("its BMC %.100q was left out: Trivet uses IPMI and Redfish", address)
		return
	}
	if e.Machine.Spec.BMC.Secret = secret; secret == "" {
		e.fail("its BMC %.100q has no Secret with user and password; name it by --secret NAME, or one for each machine "+
			"in the column bmc-secret of a CSV file", address)
	}
}

// redfishAddress returns the address of a service, with the path of the system where there is one.
func redfishAddress(rest string) string {
	if strings.Contains(rest, "/") {
		return "https://" + rest
	}
	return rest
}
