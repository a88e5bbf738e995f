package inventory

import (
	"io/fs"
	"path"
	"strings"

	"github.com/trivet-project/trivet"
)

// Port is a network port, with what the kernel knows of its link and has counted.
type Port struct {
	trivet.NICInfo
	Speed  int64  // of the link, in Mbit/s; 0: not known
	Duplex string // "full", "half" or empty
	USB    bool   // such as the one to the BMC that some machines have
	// Damaged are the frames that were received damaged (CRC, framing), and what was not sent for want of a carrier.
	Damaged int64
	Lost    int64 // how often the link was lost
	// Received and Sent are in bytes; Errors and Dropped are all frames that were not delivered, for whatever reason.
	Received, Sent, Errors, Dropped int64
}

// Ports returns the ports that are hardware.
func Ports(root fs.FS) []Port {
	var out []Port
	for _, nic := range nics(root) {
		dir := path.Join("sys/class/net", nic.Name)
		count := func(name string) int64 { return number(root, dir+"/statistics/"+name) }
		p := Port{
			NICInfo:  nic,
			Speed:    max(0, number(root, dir+"/speed")), // -1 where it is not known
			Damaged:  count("rx_crc_errors") + count("rx_frame_errors") + count("tx_carrier_errors"),
			Lost:     number(root, dir+"/carrier_down_count"),
			Received: count("rx_bytes"), Sent: count("tx_bytes"),
			Errors:  count("rx_errors") + count("tx_errors"),
			Dropped: count("rx_dropped") + count("tx_dropped"),
		}
		if duplex := text(root, dir+"/duplex"); duplex == "full" || duplex == "half" {
			p.Duplex = duplex
		}
		link, _ := fs.ReadLink(root, dir)
		p.USB = strings.Contains(link, "/usb")
		out = append(out, p)
	}
	return out
}
