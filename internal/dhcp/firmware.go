package dhcp

import (
	"encoding/binary"
	"strings"

	"github.com/insomniacslk/dhcp/iana"
)

// Class is the kind of boot firmware that sends a packet, by option 60.
type Class int

// The classes.
const (
	OtherClient Class = iota // an operating system, or a BMC
	PXEClient                // firmware that boots by TFTP, or iPXE
	HTTPClient               // UEFI firmware that boots by HTTP (UEFI 2.5 section 23.7)
)

// String returns the prefix of option 60, which is also the answer's option 60.
func (c Class) String() string {
	switch c {
	case PXEClient:
		return "PXEClient"
	case HTTPClient:
		return "HTTPClient"
	case OtherClient:
	}
	return ""
}

// Class returns the class of the client.
func (r *Packet) Class() Class {
	switch v := string(r.Option(OptClass)); {
	case strings.HasPrefix(v, "PXEClient"):
		return PXEClient
	case strings.HasPrefix(v, "HTTPClient"):
		return HTTPClient
	}
	return OtherClient
}

// Archs returns the client's processor and firmware types by option 93, the preferred first (RFC 4578 section 2.1).
func (r *Packet) Archs() []iana.Arch {
	v := r.Option(OptArch)
	archs := make([]iana.Arch, 0, len(v)/2)
	for ; len(v) >= 2; v = v[2:] {
		archs = append(archs, iana.Arch(binary.BigEndian.Uint16(v)))
	}
	return archs
}

// UUID returns option 97 of type 0: the machine's SMBIOS UUID as the firmware sends it. iPXE sends the bytes in the
// order of their text; PXE and UEFI firmware send the first three fields with their bytes reversed, as SMBIOS
// stores them.
func (r *Packet) UUID() (id [16]byte, ok bool) {
	v := r.Option(OptUUID)
	if len(v) != 17 || v[0] != 0 {
		return id, false
	}
	return [16]byte(v[1:]), true
}

// UserClasses returns the classes of option 77, whether they are sent with lengths (RFC 3004) or, as by iPXE, as
// plain text.
func (r *Packet) UserClasses() []string {
	v := r.Option(OptUserClass)
	var classes []string
	for rest := v; len(rest) > 0; rest = rest[1+int(rest[0]):] {
		if rest[0] == 0 || len(rest) < 1+int(rest[0]) {
			return []string{text(v)}
		}
		classes = append(classes, text(rest[1:1+int(rest[0])]))
	}
	return classes
}

// IPXE reports whether iPXE sent the packet, not the firmware that loads it.
func (r *Packet) IPXE() bool {
	for _, c := range r.UserClasses() {
		if c == "iPXE" {
			return true
		}
	}
	return len(r.Option(OptIPXE)) > 0
}

// Features of iPXE, sub-options of option 175.
const (
	IPXEHTTP  = 19
	IPXEHTTPS = 20
	IPXETFTP  = 21
	IPXEEFI   = 36
)

// IPXEFeature reports whether this build of iPXE has the feature.
func (r *Packet) IPXEFeature(code byte) bool {
	v, ok := subOption(r.Option(OptIPXE), code)
	return ok && len(v) > 0 && v[0] != 0
}
