package boot

// Client is who sends a DHCP packet, as the packet tells.
type Client struct {
	Arch   Arch
	Loader Loader
	IPXE   bool // iPXE, not the firmware that loaded it
	NoHTTP bool // an iPXE that says it was built without HTTP
}

// Loader is the boot firmware's kind, by option 60.
type Loader int

// The kinds.
const (
	OtherLoader Loader = iota // none: an operating system
	PXELoader                 // loads by TFTP
	HTTPLoader                // loads by HTTP (UEFI 2.5 section 23.7)
)

// Arch is a client's processor and firmware.
type Arch string

// The kinds that are told apart. Others get an address and no boot file.
const (
	OtherArch Arch = ""
	BIOS      Arch = "bios"
	UEFIx64   Arch = "uefi-x64"
	UEFIarm64 Arch = "uefi-arm64"
)

// archs are the numbers of option 93 (RFC 4578 section 2.1, and IANA's registry "Processor Architecture Types" that RFC
// 5970 section 3.3 began). 9 was published as x64 and is now EBC, 7 the other way around: firmware of both kinds sends
// both, and all of it is x64.
var archs = map[uint16]Arch{
	0:  BIOS,
	7:  UEFIx64,
	9:  UEFIx64,
	11: UEFIarm64,
	16: UEFIx64,   // by HTTP
	17: UEFIx64,   // by HTTP, EBC as above
	19: UEFIarm64, // by HTTP
	20: BIOS,      // by HTTP
}

// ArchOf maps option 93's numbers, the best first, to the first that is known. Firmware that does not send any is BIOS:
// the option is younger than PXE.
func ArchOf(numbers ...uint16) Arch {
	for _, n := range numbers {
		if a, ok := archs[n]; ok {
			return a
		}
	}
	if len(numbers) == 0 {
		return BIOS
	}
	return OtherArch
}

// File is the iPXE program for this kind; empty if there is none. They use the firmware's own driver of the port that it
// booted from, so they know every card that the firmware knows and ask no other port.
func (a Arch) File() string {
	return map[Arch]string{BIOS: "undionly.kpxe", UEFIx64: "snponly.efi", UEFIarm64: "snponly-arm64.efi"}[a]
}

// Files are the programs that machines may get, in the folder of iPXE's package.
var Files = []string{"undionly.kpxe", "snponly.efi", "ipxe.efi", "snponly-arm64.efi", "ipxe-arm64.efi"}
