package boot

// Client is the sender of a DHCP packet, by the packet's options.
type Client struct {
	Arch   Arch
	Loader Loader
	IPXE   bool // iPXE, not the firmware that loaded it
	NoHTTP bool // an iPXE that was built without HTTP
	HTTPS  bool // firmware that loads by HTTP, or an iPXE that was built with HTTPS
}

// Loader is the boot firmware's kind, by option 60.
type Loader int

// The kinds.
const (
	OtherLoader Loader = iota // an operating system
	PXELoader                 // loads by TFTP
	HTTPLoader                // loads by HTTP (UEFI 2.5 section 23.7)
)

// Arch is a client's processor and firmware.
type Arch string

// The known kinds. Others get an address and no boot file.
const (
	OtherArch Arch = ""
	BIOS      Arch = "bios"
	UEFIx64   Arch = "uefi-x64"
	UEFIarm64 Arch = "uefi-arm64"
)

// archs are the numbers of option 93 (RFC 4578 section 2.1, and IANA's registry "Processor Architecture Types" that
// RFC 5970 section 3.3 established). 9 was published as x64 and is now EBC, 7 the other way around: firmware sends
// either, and all of it is x64.
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

// ArchOf returns the first known kind of option 93's numbers. Firmware that does not send any is BIOS: PXE is older
// than the option.
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

// File returns the iPXE program for this kind; empty if there is none. These programs use the firmware's driver of
// the port that it booted from: they support each card that the firmware supports, and use no other port.
func (a Arch) File() string {
	return map[Arch]string{BIOS: "undionly.kpxe", UEFIx64: "snponly.efi", UEFIarm64: "snponly-arm64.efi"}[a]
}

// Files are the programs that machines may load, in the directory of iPXE's package.
var Files = []string{"undionly.kpxe", "snponly.efi", "ipxe.efi", "snponly-arm64.efi", "ipxe-arm64.efi"}
